// One host of the mixed soak (tests/soak/soak.py starts many):
//
//   soak_host --target vfio-user:PATH|nvme-tcp:... | --media MEDIA  --role data|check|manage|race --ledger FILE
//             [--part N] [--place N] [--first-part N --last-part N] [--nsid N] [--seconds S] [--seed N] [--flags
//             LETTERS]
//             [--host-nqn NQN] [--host-key KEY] [--controller-key KEY] [--tls-key KEY]
//
// Flags: f, commands may fail or be lost; v, the connection, too; s, ends suddenly; d, with digests.
// Exit code 0: all was right. 1: it was not; standard error says what. 3: the connection has gone, as it may not.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include <unistd.h>

#include "flashmob/error.h"
#include "soak/hosts/host.h"
#include "soak/server_watch.h"

namespace flashmob::soak {
namespace {

std::atomic<bool> told{false};

HostPlan parse(int count, char** words) {
  std::map<std::string, std::string> said;
  for (int i = 1; i + 1 < count; i += 2) said[words[i]] = words[i + 1];
  const auto text = [&](const char* key) { return said.contains(key) ? said[key] : std::string(); };
  const auto number = [&](const char* key, double otherwise) {
    return said.contains(key) ? std::atof(said[key].c_str()) : otherwise;
  };
  HostPlan plan;
  plan.door.address = text("--target");
  plan.door.host_nqn = text("--host-nqn");
  plan.door.host_key = text("--host-key");
  plan.door.controller_key = text("--controller-key");
  plan.door.tls_key = text("--tls-key");
  plan.media = text("--media");
  plan.role = said.contains("--role") ? said["--role"] : "data";
  plan.ledger = text("--ledger");
  plan.part = static_cast<std::uint32_t>(number("--part", 0));
  plan.place = static_cast<std::uint32_t>(number("--place", 0));
  plan.part_of_first_racer = static_cast<std::uint32_t>(number("--first-part", 0));
  plan.last_part = static_cast<std::uint32_t>(number("--last-part", 0));
  plan.nsid = static_cast<std::uint32_t>(number("--nsid", 1));
  plan.seconds = number("--seconds", 1e6);
  plan.seed = static_cast<unsigned>(number("--seed", 1));
  const std::string flags = text("--flags");
  const auto has = [&](char flag) { return flags.find(flag) != std::string::npos; };
  plan.may_fail = has('f');
  plan.may_vanish = has('v');
  plan.sudden = has('s');
  plan.door.header_digest = plan.door.data_digest = has('d');
  return plan;
}

void work_once(const HostPlan& plan, Ledger& ledger) {
  if (plan.role == "manage") return run_manager(plan, ledger);
  if (plan.role == "race") return run_racer(plan, ledger);
  run_data(plan, ledger);
}

// A device of our own is made anew again and again, on the same medium.
void work_alone(const HostPlan& plan, Ledger& ledger) {
  HostPlan some = plan;
  for (unsigned turn = 0; !is_told_to_end(); ++turn) {
    some.seconds = 0.3;
    some.seed = plan.seed + turn;
    // What is in memory goes with the device.
    if (plan.media == "memory") ledger.sectors.fill({});
    run_data(some, ledger);
    ledger.add(Count::opens);
    const ServerUse use = look_at(getpid());
    ledger.set(Count::descriptors, use.descriptors);
    ledger.set(Count::threads, use.threads);
    ledger.set(Count::mappings, use.mappings);
    ledger.set(Count::memory_bytes, use.memory_bytes);
  }
}

int run(int count, char** words) {
  const HostPlan plan = parse(count, words);
  std::signal(SIGTERM, [](int) { told = true; });
  for (;;) {
    try {
      Ledger& ledger = open_ledger(plan.ledger);
      if (plan.door.address.empty())
        work_alone(plan, ledger);
      else
        work_once(plan, ledger);
      return 0;
    } catch (const Wrong& wrong) {
      std::fprintf(stderr, "%s\n", wrong.what());
      return 1;
    } catch (const std::exception& error) {
      if (plan.may_vanish && is_told_to_end()) return 0;
      if (!plan.may_vanish) {
        std::fprintf(stderr, "part %u: %s\n", plan.part, error.what());
        return 3;
      }
      open_ledger(plan.ledger).add(Count::reattaches);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
}

}  // namespace

bool is_told_to_end() { return told.load(std::memory_order_relaxed); }

}  // namespace flashmob::soak

int main(int count, char** words) {
  if (count == 3 && std::string(words[1]) == "--counts") {
    flashmob::soak::print_counts(flashmob::soak::open_ledger(words[2]));
    return 0;
  }
  return flashmob::soak::run(count, words);
}
