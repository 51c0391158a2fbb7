// Norms over the processes of an MPI communicator (sharded.hpp). This header uses MPI's C API; the evenorm library does
// not, so the program that includes the header links MPI.
//
//   MPI_Init(&argc, &argv);
//   {
//     const evenorm::MpiCommunicator processes(MPI_COMM_WORLD, std::chrono::seconds(30));
//     evenorm::ShardedNorm norm(forward, processes.communicator());
//     norm.run(forward, moments);
//   }
//   MPI_Finalize();
#pragma once

#ifndef OMPI_SKIP_MPICXX  // Open MPI's C++ bindings would need a library of their own
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "evenorm/sharded.hpp"

namespace evenorm {

// MPI reported an error, which what() contains, or the deadline passed. No output has been written. If all processes
// have a deadline, every process that is still running throws it by its next gather.
class EVENORM_API CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The processes of an MPI communicator. Messages use a duplicate of the communicator, so they never mix with the
// program's own. A gather runs on the thread that runs the pass, one at a time; MPI must allow calls from that thread.
//
// After a CommunicationError the processes may be out of step, so every later gather throws it again. MPI cannot cancel
// a gather whose deadline has passed, and may still access its buffers. The buffers and the duplicate therefore live
// until the process ends. MPI_Finalize and Open MPI's MPI_Abort may wait for that gather forever. End the process with
// std::_Exit; mpirun then ends the others.
//
// The duplicate's error handler is MPI_ERRORS_RETURN, so an error of MPI throws. However, Open MPI 4 passes the errors
// of a running gather to the handler of MPI_COMM_WORLD. If that is not MPI_ERRORS_RETURN, such an error ends the
// program.
class MpiCommunicator {
 public:
  static constexpr std::chrono::milliseconds kNoDeadline = std::chrono::milliseconds::max();

  // All processes of comm, an intracommunicator, call it together (MPI_Comm_dup). deadline is the time limit of each
  // gather. Throws CommunicationError, and Error if MPI is not running or if comm or deadline is invalid.
  explicit MpiCommunicator(MPI_Comm comm, std::chrono::milliseconds deadline = kNoDeadline)
      : state_(std::make_unique<State>(comm, deadline)) {}

  // The result is valid as long as this object, which may be moved. The destructor frees the duplicate, so all
  // processes must destroy the object together, unless MPI is finalised.
  Communicator communicator() const {
    const auto all_gather = [](void* context, const std::byte* mine, std::size_t bytes, std::byte* all) {
      static_cast<State*>(context)->gather(mine, bytes, all);
    };
    return {state_->rank, state_->size, state_.get(), all_gather};
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The most bytes of one MPI call, whose count is an int. Larger messages take several calls.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 24;

  struct Buffers {
    std::vector<std::byte> mine, all;
    Buffers* next = nullptr;
  };

  static void check(int code, const char* function) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "an unknown error";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    throw CommunicationError(std::string(function) + ": " + text);
  }

  static void check_that_mpi_runs() {
    int initialised = 0, finalised = 0;
    (void)MPI_Initialized(&initialised);
    (void)MPI_Finalized(&finalised);
    if (initialised == 0) throw Error("MPI is not initialised: MPI_Init should be called before");
    if (finalised != 0) throw Error("MPI is finalised: its communicators are gone");
  }

  // Keeps buffers until the process ends. The list is intrusive because adding to it must not allocate.
  static void keep(std::unique_ptr<Buffers> buffers) noexcept {
    static std::mutex mutex;
    static Buffers* kept = nullptr;
    const std::lock_guard lock(mutex);
    buffers->next = kept;
    kept = buffers.release();
  }

  struct State {
    std::size_t rank = 0, size = 0;
    MPI_Comm comm = MPI_COMM_NULL;
    std::chrono::milliseconds deadline;
    std::unique_ptr<Buffers> buffers = std::make_unique<Buffers>();  // null after a gather failed
    std::string failure{};                                           // the reason

    State(MPI_Comm given, std::chrono::milliseconds time) : deadline(time) {
      check_that_mpi_runs();
      if (time <= std::chrono::milliseconds::zero()) {
        throw Error("deadline is " + std::to_string(time.count()) + " ms, but it should be more than 0");
      }
      if (given == MPI_COMM_NULL) throw Error("comm is MPI_COMM_NULL");
      int between_groups = 0, number = 0, processes = 0;
      check(MPI_Comm_test_inter(given, &between_groups), "MPI_Comm_test_inter");
      if (between_groups != 0) throw Error("comm is an intercommunicator, but its processes should be of one group");
      check(MPI_Comm_rank(given, &number), "MPI_Comm_rank");
      check(MPI_Comm_size(given, &processes), "MPI_Comm_size");
      rank = static_cast<std::size_t>(number);
      size = static_cast<std::size_t>(processes);
      check(MPI_Comm_dup(given, &comm), "MPI_Comm_dup");
      (void)MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
      int finalised = 0;
      (void)MPI_Finalized(&finalised);
      if (buffers != nullptr && finalised == 0) (void)MPI_Comm_free(&comm);
    }

    void gather(const std::byte* mine, std::size_t bytes, std::byte* all) {
      check_that_mpi_runs();
      if (buffers == nullptr) throw CommunicationError("an earlier gather has failed: " + failure);
      try {
        const Clock::time_point start = Clock::now();
        for (std::size_t first = 0; first < bytes; first += kMostBytes) {
          const std::size_t count = std::min(bytes - first, kMostBytes);
          gather_part(mine + first, count, start);
          for (std::size_t i = 0; i < size; ++i) {
            std::memcpy(all + i * bytes + first, buffers->all.data() + i * count, count);
          }
        }
      } catch (const std::exception& error) {
        keep(std::move(buffers));
        failure = error.what();
        throw;
      }
    }

    void gather_part(const std::byte* mine, std::size_t count, Clock::time_point start) const {
      buffers->mine.assign(mine, mine + count);
      buffers->all.resize(count * size);
      const int n = static_cast<int>(count);
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Iallgather(buffers->mine.data(), n, MPI_BYTE, buffers->all.data(), n, MPI_BYTE, comm, &request),
            "MPI_Iallgather");
      wait(request, start);
    }

    // Polls for a millisecond, since most gathers finish by then, and sleeps between polls afterwards.
    void wait(MPI_Request& request, Clock::time_point start) const {
      using namespace std::chrono_literals;
      for (;;) {
        int done = 0;
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done != 0) return;
        const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
        if (deadline != kNoDeadline && waited >= deadline) {
          throw CommunicationError("no answer from all " + std::to_string(size) + " processes within " +
                                   std::to_string(deadline.count()) + " ms");
        }
        waited < 1ms ? std::this_thread::yield() : std::this_thread::sleep_for(50us);
      }
    }
  };

  std::unique_ptr<State> state_;
};

}  // namespace evenorm
