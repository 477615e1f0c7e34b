"""Schedules that change another schedule's table: `yarn+resonance` is resonance around yarn."""
