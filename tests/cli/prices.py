"""A generated table of flats with a price: numbers of very different size, categories, missing values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = ("area", "rooms", "year", "distance")
_CITIES = {"Bergen": 1.1, "Oslo": 1.6, "Tromsø": 0.8}


def flats(rows: int = 500, seed: int = 0) -> dict[str, list[Any]]:
    """The columns of the table: no value is missing yet. Prices are about 3 to 20 million."""
    random = np.random.default_rng(seed)
    area = random.uniform(25, 180, rows)
    rooms = np.clip(np.round(area / 30 + random.normal(0, 0.7, rows)), 1, 6)
    year = random.integers(1900, 2024, rows)
    distance = random.exponential(4.0, rows)
    city = random.choice(list(_CITIES), rows)
    # Old and new flats are worth more, those between less; the centre is dear.
    level = 40_000 * (1 + ((year - 1965) / 60.0) ** 2) * (0.6 + np.exp(-distance / 3))
    price = (
        area**0.9 * level * np.array([_CITIES[name] for name in city]) * (1 + 0.03 * random.normal(size=rows))
    )
    return {
        "id": [f"N-{number:05d}" for number in range(rows)],
        "area": [f"{value:.1f}" for value in area],
        "rooms": [f"{value:.0f}" for value in rooms],
        "year": [str(value) for value in year],
        "distance": [f"{value:.2f}" for value in distance],
        "city": city.tolist(),
        "price": [f"{value:.0f}" for value in price],
    }


def with_gaps(columns: dict[str, list[Any]], share: float = 0.1, seed: int = 1) -> dict[str, list[Any]]:
    """The same with missing distances, years and cities."""
    random = np.random.default_rng(seed)
    gaps = {"distance": "", "year": "NA", "city": ""}
    return {
        name: [gaps[name] if name in gaps and random.random() < share else cell for cell in cells]
        for name, cells in columns.items()
    }


def write(path: Path, columns: dict[str, list[Any]], separator: str = ",") -> Path:
    lines = [separator.join(columns), *map(separator.join, zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
