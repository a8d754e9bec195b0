"""Components, seats without data whose networks clients share: who uses which, and how much."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scool_ppl.graph.belief import BELIEVED_ABOVE, strength
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.graph.layout import component_places
from scool_ppl.plots.style import Array
from scool_ppl.report.clients import Clients
from scool_ppl.report.links import LEAST


class Components(NamedTuple):
    """Components by name, and how much each client uses each: weights and strength (K, G), see `graph.belief`."""

    names: tuple[str, ...]
    weights: Array
    strength: Array
    believed: NDArray[np.bool_]

    @property
    def most(self) -> list[str | None]:
        """The component that each client uses most, (K,); None if it uses none."""
        chosen = zip(self.weights.argmax(1).tolist(), self.weights.max(1).tolist(), strict=True)
        return [self.names[place] if most > 0 else None for place, most in chosen]

    @property
    def users(self) -> NDArray[np.int64]:
        """How many use each, (G,), as far as it is believed."""
        return self.believed.sum(0)


def components_of(graph: CooperationGraph) -> Components | None:
    """The components of a graph, if there are any."""
    if graph.components is None:
        return None
    strong = strength(graph.components.double(), graph.kind).numpy()
    return Components(
        graph.component_names, graph.components.double().numpy(), strong, strong > BELIEVED_ABOVE[graph.kind]
    )


def shown(components: Components, places: Array | None) -> dict[str, Any]:
    """Columns of the components, in the middle of their users where clients have places (K, 2); and who uses which."""
    clients, which = np.nonzero(components.strength > LEAST)
    told = {"w": components.weights, "strength": components.strength}
    found: dict[str, Any] = {
        "name": list(components.names),
        "users": components.users.tolist(),
        "uses": {
            "from": which.tolist(),
            "to": clients.tolist(),
            **{name: values[clients, which].round(3).tolist() for name, values in told.items()},
        },
    }
    if places is not None:
        middle = component_places(components.weights * components.believed, places)
        found |= {"x": middle[:, 0].round(3).tolist(), "y": middle[:, 1].round(3).tolist()}
    return found


def rows(components: Components, clients: Clients) -> list[list[Any]]:
    """A table: each component, how many clients use it, the mean weight that they give it, and how they fare."""
    lines: list[list[Any]] = []
    scores = [np.array([np.nan if v is None else v for v in clients.numbers(name)]) for name in SCORES]
    for place, name in enumerate(components.names):
        users = components.believed[:, place]
        known = [values[users & np.isfinite(values)] for values in (components.weights[:, place], *scores)]
        means = [float(some.mean()) if len(some) else None for some in known]
        cells = [None if mean is None else (f"{mean:.3f}", mean) for mean in means]
        lines.append([name, (str(users.sum()), float(users.sum())), *cells])
    return lines


SCORES = ("accuracy", "accuracy_local")
HEADS = ("component", "clients who use it", "mean weight", *SCORES)
"""What `rows` has."""
