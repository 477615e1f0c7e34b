"""What the sources claim of the zoo's methods, and what its figures say."""

from studies.zoo.claims.verdicts import CLAIMS as CLAIMS, verdicts as verdicts
