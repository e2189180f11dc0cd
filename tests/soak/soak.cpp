// The doors' soak: clients that are killed under load, and clients that come and go, while others must neither notice
// nor read wrong data, and the server must keep nothing of those that are gone.
//
//   doors_soak --target vfio-user:/run/flashmob/ssd0 --pid PID [--kills N] [--minutes M] [--clients N] [--seed N]
//              [--growth MIB]
//
// Attaches to a server that runs (flashmob serve), whose namespace is at least 32 MiB of 512-byte blocks and is
// overwritten. Without --target it serves an SSD itself, in a process of its own.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "flashmob/server.h"
#include "soak/running_time.h"
#include "soak/server_watch.h"
#include "soak/soak_client.h"

namespace flashmob::soak {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kMaxClients = 31;
constexpr std::uint32_t kWarmUpKills = 10;
constexpr std::uint32_t kWitnesses = 2;
constexpr std::uint64_t kStall_ns = 5'000'000'000;      // of a command
constexpr std::uint64_t kHang_ns = 20'000'000'000;      // of a client's start or end

struct Options {
  std::string target;
  std::string door = "vfio-user";  // where it serves itself
  pid_t server = 0;
  std::uint32_t kills = 1000;
  double minutes = 10;
  std::uint32_t clients = 8;
  std::uint32_t seed = 1;
  std::uint64_t growth_mib = 8;  // that the server may keep; more where a sanitizer holds back what is freed
};

// A client's process. Ends with this object, at the latest.
class Child {
 public:
  Child(const ClientPlan& plan, ClientNotes& notes) : plan_(plan), notes_(&notes) {
    notes.failed.store(0);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("no process can be made for a client");
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(run_client(plan, notes) ? 0 : 1);
  }
  ~Child() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(Child&& other) noexcept : plan_(other.plan_), notes_(other.notes_), pid_(std::exchange(other.pid_, 0)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(plan_, other.plan_);
    std::swap(notes_, other.notes_);
    std::swap(pid_, other.pid_);
    return *this;
  }

  ClientNotes& notes() const { return *notes_; }
  const ClientPlan& plan() const { return plan_; }

  void kill_now() {
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    if (WIFEXITED(status)) judge(status);
  }
  // True once it has left by itself. Throws if that was not as planned.
  bool gone() {
    int status = 0;
    if (pid_ == 0 || waitpid(pid_, &status, WNOHANG) == 0) return pid_ == 0;
    pid_ = 0;
    judge(status);
    return true;
  }

 private:
  void judge(int status) const {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    throw std::runtime_error("the client of part " + std::to_string(plan_.part) + ": " +
                             (notes_->failed.load() != 0 ? notes_->failure.data() : "ended by itself, without a word"));
  }

  ClientPlan plan_;
  ClientNotes* notes_;
  pid_t pid_ = 0;
};

class Soak {
 public:
  explicit Soak(const Options& options) : options_(options), random_(options.seed) {
    void* shared = mmap(nullptr, sizeof(ClientNotes) * (kMaxClients + 1), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::runtime_error("no memory");
    notes_ = static_cast<ClientNotes*>(shared);
  }

  void run() {
    for (std::uint32_t part = 0; part < std::max(options_.clients, kWitnesses + 1); ++part) {
      Child child({.target = options_.target, .part = part, .leave = Leave::orderly, .fresh = true}, notes_[part]);
      wait_until("a first client", [&] { return child.gone(); });
    }
    // Until the server's heap has the size that so many clients at once need.
    for (std::uint32_t i = 0; i < kWarmUpKills; ++i) kill_one();
    warm_up();
    const ServerUse before = settled(nullptr);
    std::printf("with no client: %s\n", text(before).c_str());
    if (options_.kills != 0) {
      kills();
      compare(before, "after the kills");
    }
    if (options_.minutes > 0) {
      come_and_go();
      compare(before, "after coming and going");
    }
  }

 private:
  template <class Done>
  void wait_until(const char* what, Done&& done) {
    const std::uint64_t begin_ns = time_.now_ns();
    while (!done()) {
      if (time_.now_ns() - begin_ns > kHang_ns) throw std::runtime_error(std::string(what) + " does not get on");
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

  Child start(std::uint32_t part, Leave leave, std::uint64_t life_ms = 0) {
    return {{options_.target, part, static_cast<std::uint32_t>(random_()), life_ms, leave, false}, notes_[part]};
  }

  // Kills a client somewhere between its first commands and some milliseconds later.
  void kill_one() {
    const std::uint64_t before = notes_[0].completions.load();
    Child victim = start(0, Leave::killed);
    const std::uint64_t until = before + random_() % 400;
    wait_until("a client to be killed", [&] { return notes_[0].completions.load() > until || victim.gone(); });
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 3000));
    victim.kill_now();
  }

  void warm_up() {
    std::vector<Child> clients;
    for (std::uint32_t part = 0; part < options_.clients; ++part) clients.push_back(start(part, Leave::resets, 500));
    for (Child& client : clients) wait_until("a client", [&] { return client.gone(); });
  }

  void kills() {
    const std::uint64_t begin_ns = time_.now_ns();
    clear_figures();
    std::vector<Child> witnesses;
    for (std::uint32_t i = 0; i < kWitnesses; ++i) witnesses.push_back(start(i + 1, Leave::killed));
    for (std::uint32_t i = 1; i <= options_.kills; ++i) {
      kill_one();
      for (Child& witness : witnesses)
        if (witness.gone()) throw std::runtime_error("a client that stayed is gone");
      if (i % std::max(1u, options_.kills / 5) == 0)
        std::printf("%u kills: %s\n", i, text(look_at(options_.server)).c_str());
    }
    witnesses.clear();
    const double seconds = static_cast<double>(time_.now_ns() - begin_ns) / 1e9;
    std::printf("%u clients killed under load in %.0f s; those that stayed:\n", options_.kills, seconds);
    report(1, kWitnesses + 1);
  }

  void come_and_go() {
    const std::uint64_t begin_ns = time_.now_ns();
    const std::uint64_t end_ns = begin_ns + static_cast<std::uint64_t>(options_.minutes * 60e9);
    clear_figures();
    struct Place {
      std::vector<Child> client;  // one or none
      std::uint64_t next_ns = 0;  // when it is killed, or the next one comes
    };
    std::vector<Place> places(options_.clients);
    std::array<std::uint64_t, 4> leaves{};
    while (time_.now_ns() < end_ns) {
      for (std::uint32_t part = 0; part < places.size(); ++part) {
        Place& place = places[part];
        const bool due = time_.now_ns() > place.next_ns;
        if (place.client.empty()) {
          if (!due) continue;
          const auto leave = static_cast<Leave>(random_() % 4);
          const std::uint64_t life_ms = 100 + random_() % 2000;
          ++leaves.at(static_cast<std::size_t>(leave));
          place.client.push_back(start(part, leave, life_ms));
          place.next_ns = time_.now_ns() + life_ms * 1'000'000;
        } else if (place.client[0].plan().leave == Leave::killed ? due : place.client[0].gone()) {
          place.client.clear();
          place.next_ns = time_.now_ns() + random_() % 300 * 1'000'000;
        } else if (time_.now_ns() > place.next_ns + kHang_ns) {
          throw std::runtime_error("the client of part " + std::to_string(part) + " does not come to its end");
        }
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    places.clear();
    const double seconds = static_cast<double>(time_.now_ns() - begin_ns) / 1e9;
    std::printf("%u clients coming and going for %.0f s: %lu killed, %lu in order, %lu suddenly, %lu with a reset\n",
                options_.clients, seconds, leaves[0], leaves[1], leaves[2], leaves[3]);
    report(0, options_.clients);
  }

  void clear_figures() {
    for (std::uint32_t i = 0; i <= kMaxClients; ++i) {
      notes_[i].attaches = notes_[i].completions = notes_[i].sectors_checked = 0;
      notes_[i].longest_attach_ns = notes_[i].longest_command_ns = 0;
    }
  }

  void report(std::uint32_t first, std::uint32_t end) {
    std::uint64_t attaches = 0;
    std::uint64_t completions = 0;
    std::uint64_t checked = 0;
    std::uint64_t attach_ns = 0;
    std::uint64_t command_ns = 0;
    for (std::uint32_t i = first; i < end; ++i) {
      attaches += notes_[i].attaches;
      completions += notes_[i].completions;
      checked += notes_[i].sectors_checked;
      attach_ns = std::max<std::uint64_t>(attach_ns, notes_[i].longest_attach_ns);
      command_ns = std::max<std::uint64_t>(command_ns, notes_[i].longest_command_ns);
    }
    std::printf("  %lu attached, %lu commands, %lu sectors checked, slowest attach %.1f ms, slowest command %.1f ms\n",
                attaches, completions, checked, static_cast<double>(attach_ns) / 1e6,
                static_cast<double>(command_ns) / 1e6);
    if (command_ns > kStall_ns) throw std::runtime_error("a command took longer than 5 s");
  }

  // The server learns of an end within moments; `aim`, where it is known, is waited for a little longer.
  ServerUse settled(const ServerUse* aim) const {
    for (int i = 0;; ++i) {
      std::this_thread::sleep_for(milliseconds(100));
      const ServerUse use = look_at(options_.server);
      const bool reached = aim == nullptr || (use.descriptors == aim->descriptors && use.threads == aim->threads);
      if ((reached && i >= 10) || i == 50) return use;
    }
  }

  void compare(const ServerUse& before, const char* when) const {
    const ServerUse after = settled(&before);
    std::printf("%s: %s\n", when, text(after).c_str());
    if (after.descriptors > before.descriptors) throw std::runtime_error("the server has kept descriptors");
    if (after.threads > before.threads) throw std::runtime_error("the server has kept threads");
    if (after.memory_bytes > before.memory_bytes + (options_.growth_mib << 20))
      throw std::runtime_error("the server has grown by more than " + std::to_string(options_.growth_mib) + " MiB");
  }

  Options options_;
  std::mt19937 random_;
  RunningTime time_;
  ClientNotes* notes_ = nullptr;
};

// Serves an SSD in a process of its own, until that is killed. Returns the process.
pid_t serve(const std::string& door, const std::filesystem::path& folder, std::string& address) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe can be made");
  const pid_t server = fork();
  if (server < 0) throw std::runtime_error("no process can be made for the server");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      DeviceConfig device;
      device.subsystem.namespaces[0].size_bytes = kPartBytes * (kMaxClients + 1);
      device.timing.model = "none";
      ServerOptions options;
      if (door == "nvme-tcp")
        options.tcp_address = "127.0.0.1:0";
      else
        options.vfio_user_path = folder / "cntrl";
      Server running(device, options);
      running.start();
      const std::string where = running.addresses().at(0);
      if (write(ends[1], where.c_str(), where.size() + 1) < 0) _exit(1);
      for (;;) pause();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
  }
  close(ends[1]);
  char byte = 0;
  while (read(ends[0], &byte, 1) == 1 && byte != 0) address += byte;
  close(ends[0]);
  if (address.empty()) throw std::runtime_error("the server does not start");
  return server;
}

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string key = words[i];
    if (i + 1 == count) throw std::runtime_error(key + " needs a value");
    const char* value = words[i + 1];
    if (key == "--target")
      options.target = value;
    else if (key == "--door")
      options.door = value;
    else if (key == "--pid")
      options.server = std::atoi(value);
    else if (key == "--kills")
      options.kills = static_cast<std::uint32_t>(std::atoi(value));
    else if (key == "--minutes")
      options.minutes = std::atof(value);
    else if (key == "--clients")
      options.clients = static_cast<std::uint32_t>(std::atoi(value));
    else if (key == "--seed")
      options.seed = static_cast<std::uint32_t>(std::atoi(value));
    else if (key == "--growth")
      options.growth_mib = static_cast<std::uint64_t>(std::atoi(value));
    else
      throw std::runtime_error(key + " is no option: see the beginning of tests/soak/soak.cpp");
  }
  if (options.clients < 1 || options.clients > kMaxClients) throw std::runtime_error("--clients is 1 to 31");
  if (options.target.empty() != (options.server == 0)) throw std::runtime_error("--target and --pid go together");
  return options;
}

int run(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::filesystem::path folder;
  pid_t own_server = 0;
  int result = 0;
  try {
    Options options = parse(count, words);
    if (options.target.empty()) {
      folder = std::filesystem::temp_directory_path() / ("flashmob-soak-" + std::to_string(getpid()));
      std::filesystem::create_directory(folder);
      own_server = options.server = serve(options.door, folder, options.target);
    }
    Soak(options).run();
    std::printf("all was right\n");
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    result = 1;
  }
  if (own_server != 0) {
    kill(own_server, SIGKILL);
    waitpid(own_server, nullptr, 0);
  }
  if (!folder.empty()) std::filesystem::remove_all(folder);
  return result;
}

}  // namespace
}  // namespace flashmob::soak

int main(int count, char** words) { return flashmob::soak::run(count, words); }
