"""Ready-made sweeps, the base that they start from, and the GPU catalogue: YAML files only."""
