# SPDX-License-Identifier: Apache-2.0
"""notebook.py execute FILE | interrupt: runs cells in a real Jupyter kernel (nbclient), for
test_notebook.py, in an environment of its own. Prints what the cells print."""

import sys
import time

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
        notebook, timeout=120, resources={"metadata": {"path": "runtime/examples"}}
    )
    try:
        client.execute()
    finally:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                show(cell)


def interrupt():
    """The stop button while a job runs."""
    client = nbclient.NotebookClient(nbformat.v4.new_notebook())
    with client.setup_kernel():
        request = client.kc.execute(WAITS)
        deadline = time.monotonic() + 60
        waiting = 0
        while time.monotonic() < deadline:
            message = client.kc.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                print(content["text"], end="")
                before, waiting = waiting, waiting + content["text"].count("WAITING")
                if before < 2 <= waiting:
                    client.km.interrupt_kernel()
            elif message["msg_type"] == "error":
                print("ERROR", content["ename"])
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return
        sys.exit("the kernel was busy for 60 s")


if __name__ == "__main__":
    execute(sys.argv[2]) if sys.argv[1] == "execute" else interrupt()
