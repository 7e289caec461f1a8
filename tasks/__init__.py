"""What runs on a device: Gemms, timing protocols, telemetry. Knows torch; never Ray, OmegaConf or a file path."""
