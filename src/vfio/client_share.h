// What clients over UNIX sockets may take of what this process has only so much of: the mappings of memory that they
// share with it, the addresses that these take, and the descriptors that they leave with it. Shares are those of
// processes first, then of a process's clients (base/fair_share.h), so that a process is no better off with many
// clients. Of a user who is not the server's own, all processes count as one, as do those of another PID namespace.
//
// Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fair_share.h"

namespace flashmob::vfio {

class ClientBudgets {
 public:
  // Half of what a process has of addresses on x86-64, 47 bits: files without content are as long as anybody likes.
  static constexpr std::uint64_t kAddressBytes = std::uint64_t{1} << 46;

  ClientBudgets(std::size_t mappings, std::size_t descriptors, std::uint64_t address_bytes = kAddressBytes)
      : mappings_(mappings, kMost), descriptors_(descriptors, kMost), addresses_(address_bytes, kMost) {}
  // Of this process. Mappings: a third of what the kernel allows it, because one that is cut short becomes two.
  // Descriptors: half of its limit. Addresses: no more than half of its limit, where it has one (RLIMIT_AS).
  static ClientBudgets& of_process();

 private:
  friend class ClientShare;
  static constexpr std::uint64_t kMost = 4;
  struct Process {
    FairShare::Holder mappings, descriptors, addresses;
  };
  using Key = std::pair<bool, std::uint64_t>;  // a user, or a process

  std::shared_ptr<Process> process_of(pid_t pid, uid_t uid);

  std::mutex mutex_;
  FairShare mappings_, descriptors_, addresses_;
  std::map<Key, std::weak_ptr<Process>> processes_;
};

// Of one client. Outlives what it has taken.
class ClientShare {
 public:
  ClientShare(ClientBudgets& budgets, pid_t pid, uid_t uid);
  // Of whoever is at the other end of a socket.
  explicit ClientShare(int socket);
  ClientShare(const ClientShare&) = delete;
  ClientShare& operator=(const ClientShare&) = delete;

  // One more, or so many bytes; false if that is more than its share.
  bool take_mapping() { return take(budgets_.mappings_, mappings_); }
  bool take_addresses(std::uint64_t bytes) { return take(budgets_.addresses_, addresses_, bytes); }
  bool take_descriptor() { return take(budgets_.descriptors_, descriptors_); }
  void give_mapping() { give(budgets_.mappings_, mappings_); }
  void give_addresses(std::uint64_t bytes) { give(budgets_.addresses_, addresses_, bytes); }
  void give_descriptor() { give(budgets_.descriptors_, descriptors_); }

 private:
  bool take(FairShare& share, FairShare::Holder& holder, std::uint64_t amount = 1) {
    const std::lock_guard lock(budgets_.mutex_);
    return share.take(holder, amount) == FairShare::Answer::given;
  }
  void give(FairShare& share, FairShare::Holder& holder, std::uint64_t amount = 1) {
    const std::lock_guard lock(budgets_.mutex_);
    share.give(holder, amount);
  }

  ClientBudgets& budgets_;
  const std::shared_ptr<ClientBudgets::Process> process_;
  FairShare::Holder mappings_, descriptors_, addresses_;
};

}  // namespace flashmob::vfio
