"""Tables of six hospitals, as a user has them: numbers of all sizes, texts, true and false, and a label in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

NAMES = tuple(f"hospital {number}" for number in (1, 2, 3, 4, 5, 10))
COLUMNS = ("age", "sex", "ward", "platelets", "lactate", "smoker")


def hospitals(rows: int = 60, seed: int = 0) -> dict[str, pd.DataFrame]:
    """name -> table; who dies depends on age and lactate in the first three, on platelets in the others."""
    tables = {}
    for number, name in enumerate(NAMES):
        random = np.random.default_rng([seed, number])
        table = pd.DataFrame(
            {
                "age": random.integers(20, 90, rows),
                "sex": random.choice(["f", "m"], rows),
                "ward": random.choice(["surgery", "medicine"] if number else ["surgery", "intensive care"], rows),
                "platelets": random.normal(250_000, 60_000, rows).round(),
                "lactate": random.gamma(2.0, 1.0, rows).round(2),
                "smoker": random.random(rows) < 0.3,
            }
        )
        danger = (table.age - 55) / 20 + (table.lactate - 2) if number < 3 else (table.platelets - 250_000) / 40_000
        table["died"] = np.where(danger + random.normal(0, 0.3, rows) > 0, "yes", "no")
        table["days"] = (10 + 4 * danger + random.normal(0, 1, rows)).round(1)
        tables[name] = table
    return tables


def write_hospitals(folder: Path, rows: int = 60, ending: str = ".csv") -> Path:
    """A folder with a file for each, for the label `died`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in hospitals(rows).items():
        own, path = table.drop(columns="days"), folder / f"{name}{ending}"
        if ending == ".csv":
            own.to_csv(path, index=False)
        elif ending == ".parquet":
            own.to_parquet(path)
        else:
            texts = own.select_dtypes(exclude=["number", "bool"]).columns
            np.savez(path, **{name: own[name].to_numpy(str if name in texts else None) for name in own})
    return folder
