"""What tests that render need."""

import ctypes.util

from requirements import needs

needs_gl = needs(
    "gl",
    ctypes.util.find_library("OSMesa") or ctypes.util.find_library("EGL"),
    "no library that renders is here: apt install libosmesa6",
)
