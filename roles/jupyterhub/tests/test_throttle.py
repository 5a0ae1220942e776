"""Who guesses passwords waits longer and longer; nobody else does."""

from __future__ import annotations

from roles.jupyterhub.files.portal.throttle import Throttle


def test_each_failure_costs_more_until_half_a_minute() -> None:
    throttle, delays = Throttle(), []
    for now in range(7):
        delays.append(throttle.delay("ada", "192.0.2.1", float(now)))
        throttle.failed("ada", "192.0.2.1", float(now))
    assert delays == [0.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_others_at_the_same_address_do_not_wait() -> None:
    throttle = Throttle()
    for _ in range(5):
        throttle.failed("ada", "192.0.2.1", 0.0)
    assert throttle.delay("bob", "192.0.2.1", 0.0) == 0.0


def test_the_same_name_from_elsewhere_does_not_wait() -> None:
    throttle = Throttle()
    for _ in range(5):
        throttle.failed("ada", "192.0.2.1", 0.0)
    assert throttle.delay("ada", "198.51.100.7", 0.0) == 0.0


def test_one_name_from_many_addresses_is_slowed() -> None:
    throttle = Throttle()
    for number in range(20):
        throttle.failed("ada", f"192.0.2.{number}", 0.0)
    assert throttle.delay("ada", "198.51.100.7", 0.0) == 0.0
    throttle.failed("ada", "192.0.2.200", 0.0)
    assert throttle.delay("ada", "198.51.100.7", 0.0) == 2.0


def test_one_address_with_many_names_is_slowed() -> None:
    throttle = Throttle()
    for number in range(10):
        throttle.failed(f"user{number}", "192.0.2.1", 0.0)
    assert throttle.delay("ada", "192.0.2.1", 0.0) == 0.0
    throttle.failed("user10", "192.0.2.1", 0.0)
    assert throttle.delay("ada", "192.0.2.1", 0.0) == 2.0
    for number in range(2000):  # a power of two that large is no number of seconds
        throttle.failed(f"more{number}", "192.0.2.1", 0.0)
    assert throttle.delay("ada", "192.0.2.1", 0.0) == 30.0


def test_a_success_and_time_forget() -> None:
    throttle = Throttle()
    throttle.failed("ada", "192.0.2.1", 0.0)
    throttle.succeeded("ada", "192.0.2.1")
    assert throttle.delay("ada", "192.0.2.1", 1.0) == 0.0
    throttle.failed("ada", "192.0.2.1", 1000.0)
    assert throttle.delay("ada", "192.0.2.1", 1900.0) == 2.0
    assert throttle.delay("ada", "192.0.2.1", 1901.0) == 0.0


def test_memory_does_not_grow_without_end() -> None:
    throttle = Throttle()
    for number in range(3334):  # three keys each
        throttle.failed(f"user{number}", f"a{number}", 1000.0)
    throttle.failed("bob", "192.0.2.9", 1001.0)
    assert len(throttle.failures) == 10_005  # a quarter of an hour is not over
    throttle.failed("ada", "192.0.2.1", 1901.0)
    assert len(throttle.failures) == 6
