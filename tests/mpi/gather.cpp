// A program that uses evenorm/mpi.hpp alone, for tests/mpi/mpi_test.cpp. Each process prints its results on a line of
// its own.
//   mpi_gather bytes N...   each process gathers N bytes of all processes
//   mpi_gather lifecycle    before MPI_Init, with invalid communicators, after MPI_Finalize
//   mpi_gather late         the last process joins after the deadline of the others
//   mpi_gather uneven       the last process sends more bytes than the others
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <evenorm/mpi.hpp>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using evenorm::MpiCommunicator;

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::size_t process, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 31 + i / 977 + process * 7) & 255);
  return bytes;
}

Bytes gathered(const evenorm::Communicator& c, std::size_t count) {
  const Bytes mine = bytes_of(c.rank, count);
  Bytes all(count * c.size);
  c.all_gather(c.context, mine.data(), count, all.data());
  return all;
}

std::string said(const std::function<void()>& call) {
  try {
    call();
  } catch (const evenorm::CommunicationError& error) {
    return std::string("CommunicationError: ") + error.what();
  } catch (const evenorm::Error& error) {
    return std::string("Error: ") + error.what();
  }
  return "done";
}

void say(std::size_t rank, const std::string& text) { std::printf("%zu %s\n", rank, text.c_str()); }

void check_bytes(const MpiCommunicator& processes, std::size_t count) {
  const evenorm::Communicator c = processes.communicator();
  Bytes expected;
  for (std::size_t i = 0; i < c.size; ++i) {
    const Bytes of_process = bytes_of(i, count);
    expected.insert(expected.end(), of_process.begin(), of_process.end());
  }
  say(c.rank, std::to_string(count) + (gathered(c, count) == expected ? " bytes are right" : " bytes are WRONG"));
}

void lifecycle() {
  const auto made = [](MPI_Comm comm, std::chrono::milliseconds deadline) {
    return said([&] { const MpiCommunicator processes(comm, deadline); });
  };
  say(0, made(MPI_COMM_WORLD, 1s));
  MPI_Init(nullptr, nullptr);
  say(0, made(MPI_COMM_NULL, 1s));
  say(0, made(MPI_COMM_WORLD, 0ms));
  say(0, made(MPI_COMM_WORLD, MpiCommunicator::kNoDeadline));
  std::optional<MpiCommunicator> first(MPI_COMM_WORLD);
  MpiCommunicator second = std::move(*first);
  first.reset();
  check_bytes(second, 8);
  MPI_Finalize();
  say(0, said([&] { gathered(second.communicator(), 8); }));
  say(0, made(MPI_COMM_WORLD, 1s));
}

// The abandoned gather completes later, in MPI_Barrier, and its buffers still exist.
void late() {
  {
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const bool is_late = rank + 1 == size;
    const MpiCommunicator processes(MPI_COMM_WORLD, is_late ? 20s : 300ms);
    const evenorm::Communicator c = processes.communicator();
    if (is_late) std::this_thread::sleep_for(1s);
    say(c.rank, said([&] { gathered(c, 100000); }));
    if (!is_late) say(c.rank, said([&] { gathered(c, 8); }));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const MpiCommunicator anew(MPI_COMM_WORLD, 20s);
  check_bytes(anew, 1000);
}

void uneven() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // see evenorm/mpi.hpp
  const MpiCommunicator processes(MPI_COMM_WORLD, 1s);
  const evenorm::Communicator c = processes.communicator();
  say(c.rank, said([&] { gathered(c, c.rank + 1 == c.size ? 4000 : 400); }));
  std::fflush(stdout);
  std::this_thread::sleep_for(500ms);
  std::_Exit(3);
}

void bytes(const std::vector<std::string>& counts) {
  const MpiCommunicator processes(MPI_COMM_WORLD, 60s);
  for (const std::string& count : counts) check_bytes(processes, std::stoul(count));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return 2;
  if (words[0] == "lifecycle") {
    lifecycle();
    return 0;
  }
  MPI_Init(&argc, &argv);
  if (words[0] == "bytes") bytes({words.begin() + 1, words.end()});
  if (words[0] == "late") late();
  if (words[0] == "uneven") uneven();
  MPI_Finalize();
  return 0;
}
