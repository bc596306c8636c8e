"""NVIDIA GPUs and MIG instances, through NVML."""
