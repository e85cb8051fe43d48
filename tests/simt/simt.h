// SIMT on the host: runs CUDA kernels that were compiled as plain C++, so that their indices,
// masks, reductions and fragment layouts are tested where there is no GPU.
//
// The blocks of a grid run one after another, the first or the last first (Order). The threads of a
// block are fibers: each runs until it comes to a barrier or to an operation of its warp, and goes
// on when all that take part have come. Between two barriers one warp runs as far as it can before
// the next one starts, in ascending or descending order, so that a missing barrier shows in one of
// the two. Dynamic shared memory is filled with NaN before each block. Copies of cp.async are made
// when they are waited for, or, in descending order, at once: a device may do either.
//
// What a kernel does wrong (threads that part at a barrier, a deadlock) ends the process with a
// message: there is no result to go on with. One launch at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace simt {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

// What the built-in variables of a kernel read.
extern Index thread_index, block_index, block_size, grid_size;
extern unsigned char* dynamic_shared;  // of the block that runs

enum class Order : uint8_t { ascending, descending };
void set_order(Order order);  // of blocks, of warps, and of the lanes in a warp

// Runs `kernel` for every thread of the grid.
void run_grid(Index grid, Index block, size_t shared_bytes, const std::function<void()>& kernel);

// __syncthreads(); `where` names the call.
void barrier(const char* where);

// An operation of all lanes in `mask`: when the last of them comes, `all` is called once with the
// arguments of every lane (null for lanes outside the mask). `what` must be the same for all.
using WarpFunction = void (*)(void* const args[32], unsigned mask);
void warp_operation(const char* what, unsigned mask, void* arg, WarpFunction all);

// cp.async of the thread that runs.
void copy_async(void* to, const void* from, size_t bytes, size_t zeros);
void commit_async();
void wait_async(unsigned newest_groups_left);

[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace simt
