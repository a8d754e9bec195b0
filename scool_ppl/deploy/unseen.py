"""Unseen classes: how likely an image is of a class that its client has never trained on."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.errors import InputError


def unseen_log_odds(train_counts: Tensor, held_out_counts: Tensor) -> Tensor:
    """Log-odds b (K, C) to add to each client's log-probabilities of the classes, by a Good-Turing count.

        u = (hits + 1/2) / (held-out images + 1) / mean over clients of the number of unseen classes
        b = min(0, log(C u)) at the classes that client i has not seen, 0 at the others

    `train_counts` (K, C) and `held_out_counts` (K, C) are images by client and class. A class is unseen if its client has
    no training image of it; hits are held-out images, of all clients, of a class that their client has not seen. u is
    the chance that an image is of a given unseen class: by guessing it is 1 / C, and b = 0. Where no client lacks a class,
    or there are no classes (C = 0), b is 0.
    """
    shape = tuple(train_counts.shape)
    if len(shape) != 2 or tuple(held_out_counts.shape) != shape:
        raise InputError(
            f"counts have shapes {shape} and {tuple(held_out_counts.shape)}, expected (clients, classes) for both; "
            "count the images of each client by class, on the training and on the held-out part"
        )
    unseen = train_counts == 0
    log_odds = torch.zeros(shape)
    if bool(unseen.any()):
        hits = held_out_counts[unseen].sum()
        missing = (hits + 0.5) / (held_out_counts.sum() + 1)
        each = missing / unseen.sum(1).double().mean()
        log_odds[unseen] = float((shape[1] * each).log().clamp(max=0))
    return log_odds
