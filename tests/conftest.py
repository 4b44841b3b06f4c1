"""What all tests share: Hypothesis sets no deadline and no pace, since no test depends on an idle machine."""

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
