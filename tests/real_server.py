"""`ropewalk serve` in a process of its own, for tests with real clients."""

import os
import re
import signal
import subprocess
import sys
import time


class Server:
    """The command in a process of its own."""

    def __init__(self, *arguments, **env):
        self.begun = time.monotonic()
        command = [sys.executable, "-m", "ropewalk", "serve", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
        )

    def ready(self):
        self.line = self.process.stdout.readline()
        self.url = re.search(r"http://\S+", self.line)[0]
        return self

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err
