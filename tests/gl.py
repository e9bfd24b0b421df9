"""What tests that draw need."""

import ctypes.util

import pytest

needs_gl = pytest.mark.skipif(
    not (ctypes.util.find_library("OSMesa") or ctypes.util.find_library("EGL")),
    reason="no library that draws is here: apt install libosmesa6",
)
