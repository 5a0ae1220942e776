from tests.health_live import nvml, well

__all__ = ["nvml", "well"]
