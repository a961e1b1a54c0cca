# SPDX-License-Identifier: Apache-2.0
"""notebook.py execute FILE | interrupt: runs cells in a real Jupyter kernel (nbclient), for
test_notebook.py, in an environment of its own. Prints what the cells print."""

import sys

import jupyter_client.manager
import nbclient
import nbformat

WAITS = """
import horovod, time

def wait():
    print("WAITING", flush=True)
    time.sleep(600)

horovod.run(wait, num_proc=2)
"""


def show(cell):
    for output in cell.outputs:
        if output.output_type == "stream":
            print(output.text, end="")


def execute(path):
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=240, startup_timeout=240, resources={"metadata": {"path": "runtime/examples"}}
    )
    try:
        client.execute()
    finally:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                show(cell)


def interrupt():
    """The stop button while a job runs."""
    manager, kernel = jupyter_client.manager.start_new_kernel(startup_timeout=240)
    try:
        request = kernel.execute(WAITS)
        waiting = 0
        while True:
            message = kernel.get_iopub_msg(timeout=240)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                print(content["text"], end="")
                before, waiting = waiting, waiting + content["text"].count("WAITING")
                if before < 2 <= waiting:
                    manager.interrupt_kernel()
            elif message["msg_type"] == "error":
                print("ERROR", content["ename"])
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    execute(sys.argv[2]) if sys.argv[1] == "execute" else interrupt()
