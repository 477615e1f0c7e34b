"""The equation, fast: one entry, several ways to compute it, each checked against the oracle."""

from ropewalk.attention.attend import attend as attend
from ropewalk.attention.attend import explain as explain
from ropewalk.attention.memory import Memory as Memory
from ropewalk.attention.nll import judged as judged
from ropewalk.attention.nll import nll as nll
from ropewalk.attention.session import Session as Session
