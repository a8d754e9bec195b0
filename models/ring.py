"""Ring: clients sit on a circle and learn from near neighbours; the example of a prior of one's own."""

import pyro
import pyro.distributions as dist
import torch

from scool_ppl import CooperationModel, Evidence, GraphPrior, likelihoods, mixing


class Ring(GraphPrior):
    """Y_ij ~ Bernoulli(sigmoid(b - steps from i to j around the circle)), b is learned."""

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients)
        self.b = torch.nn.Parameter(torch.tensor(1.0))

    def model(self, evidence: Evidence) -> torch.Tensor:
        steps = (self.receiver(torch.arange(self.num_clients)) - self.sender(torch.arange(self.num_clients))).abs()
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=self.b - torch.minimum(steps, self.num_clients - steps)))


def build(num_clients: int) -> CooperationModel:
    return CooperationModel(Ring(num_clients), likelihoods.CrossLoss(), mixing.MixUpdates())
