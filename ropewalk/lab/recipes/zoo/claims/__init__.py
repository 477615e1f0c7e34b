"""What the sources claim of the zoo's methods, and what its figures say."""

from ropewalk.lab.recipes.zoo.claims.verdicts import CLAIMS as CLAIMS
from ropewalk.lab.recipes.zoo.claims.verdicts import verdicts as verdicts
