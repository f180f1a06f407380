"""Vision towers and projectors, part by part as the engine builds them (vLLM 0.33.0 model files)."""
