from tests.health_live import nvml, well
from tests.role_play import play

__all__ = ["nvml", "play", "well"]
