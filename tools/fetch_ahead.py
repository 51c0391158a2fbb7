"""What some stages of tools/stages fetch, begun beside the stages before them: it waits for the network, and keeps one
processor busy where stages keep all."""
import subprocess
import threading

from counted import RESULTS, ROOT

TOOLS = ROOT / "tools"
# In the order of their stages, and one after the other: the system's packages are installed by one at a time. What goes
# wrong here goes wrong again in the stage, which says so.
COMMANDS = {
    "python": [(TOOLS / "setup.sh", "python"), (TOOLS / "python", "prepare")],
    "page": [(TOOLS / "browser",)],
    "aarch64": [(TOOLS / "aarch64", "prepare")],
}


class FetchAhead:
    """Begins with what `stages` fetch; wait(stage) returns when that stage's is there, or could not be had. At the end of
    the block no other command is begun, and the one that runs is waited for."""

    def __init__(self, stages):
        self.ready = {stage: threading.Event() for stage in COMMANDS if stage in stages}
        self.ended = False
        self.thread = threading.Thread(target=self.fetch)

    def __enter__(self):
        RESULTS.mkdir(parents=True, exist_ok=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()

    def fetch(self):
        for stage, ready in self.ready.items():
            try:
                with (RESULTS / f"{stage}.fetch.log").open("wb") as log:
                    for command in COMMANDS[stage]:
                        if self.ended or subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode:
                            break
            except OSError:
                pass  # the stage tries it itself
            finally:
                ready.set()

    def wait(self, stage):
        if stage in self.ready:
            self.ready[stage].wait()
