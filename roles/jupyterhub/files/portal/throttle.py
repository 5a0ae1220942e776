"""Slows down who guesses passwords, without locking anybody out.

Failures are counted for each name from each address, and more generously for a name from anywhere
and for an address with any name. The next attempt waits 2, 4, 8 … seconds, at most half a minute; a
success, or a quarter of an hour without a failure, forgets it. At half a minute each, a hundred
guesses take most of an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST = 2.0
MOST = 30.0
FORGET = 900.0
# So many failures of a name, from wherever, and of an address, which may be a whole institute's,
# cost nobody else anything.
FREE = {"pair": 0, "name": 20, "address": 10}


def _keys(name: str, address: str) -> tuple[tuple[str, str], ...]:
    return (("pair", f"{name}\0{address}"), ("name", name), ("address", address))


@dataclass
class Throttle:
    """Times are seconds of one clock that never goes back."""

    failures: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    def delay(self, name: str, address: str, now: float) -> float:
        """How many seconds the next attempt of this name, from this address, waits."""
        return max(self._delay(key, now) for key in _keys(name, address))

    def failed(self, name: str, address: str, now: float) -> None:
        """Remembers a wrong password."""
        self._forget(now)
        for key in _keys(name, address):
            count, _ = self.failures.get(key, (0, now))
            self.failures[key] = (count + 1, now)

    def succeeded(self, name: str, address: str) -> None:
        """Forgets the failures of this name from here; the others may be other people's."""
        self.failures.pop(_keys(name, address)[0], None)

    def _delay(self, key: tuple[str, str], now: float) -> float:
        free = FREE[key[0]]
        count, last = self.failures.get(key, (0, now))
        if count <= free or now - last > FORGET:
            return 0.0
        return min(FIRST * 2.0 ** min(count - free - 1, 10), MOST)

    def _forget(self, now: float) -> None:
        if len(self.failures) > 10_000:
            self.failures = {
                key: value for key, value in self.failures.items() if now - value[1] <= FORGET
            }
