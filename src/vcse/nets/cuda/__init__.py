"""What makes networks faster on a GPU: CUDA graphs, side streams and kernels."""
