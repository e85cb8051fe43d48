"""libblend and PyTorch in one process, loaded in either order, at work in turn and at the same time.

Both bring kernels, threads and third-party libraries (another OpenMP, oneDNN); neither may meet the other's.
"""

import importlib.util
import pathlib
import subprocess
import sys
import unittest

CODE = """
import threading
import {first}
import {second}
import libblend, support, torch

# Whole numbers: every order of summation gives the same bits.
torch.set_num_threads(2)
left = (torch.arange(300 * 500) % 7).reshape(300, 500)
right = (torch.arange(500 * 400) % 5).reshape(500, 400)
image = (torch.arange(2 * 8 * 32 * 32) % 3).reshape(2, 8, 32, 32)
weights = (torch.arange(8 * 8 * 3 * 3) % 3).reshape(8, 8, 3, 3)
product = left @ right
folded = torch.nn.functional.conv2d(image.double(), weights.double())

def torch_works():
    return (torch.equal(left.float() @ right.float(), product.float())
            and torch.equal(torch.nn.functional.conv2d(image.float(), weights.float()), folded.float()))

def answer():
    with case.fuse(case(), reserve_tokens=8) as fusion:
        return "".join(token.text for token in fusion.generate(8))

case = support.Case
case.setUpClass()
try:
    assert torch_works()
    alone = answer()
    assert torch_works()
    right_ones = []
    beside = threading.Thread(target=lambda: right_ones.extend(torch_works() for _ in range(20)))
    beside.start()
    together = [answer() for _ in range(3)]
    beside.join()
    assert together == [alone] * 3, together
    assert right_ones == [True] * 20, right_ones
    print(alone)
finally:
    case.doClassCleanups()
"""


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed for this Python")
class BesideTorch(unittest.TestCase):
    def test_either_first(self):
        for first, second in (("libblend", "torch"), ("torch", "libblend")):
            with self.subTest(first=first):
                code = CODE.format(first=first, second=second)
                done = subprocess.run([sys.executable, "-c", code], cwd=pathlib.Path(__file__).parent,
                                      capture_output=True, text=True, timeout=240)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("square anchor", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # says why it is skipped
