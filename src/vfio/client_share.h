// What clients over UNIX sockets may take of what this process has only so much of: the mappings of memory that they
// share with it, and the descriptors that they leave with it. Shares are those of processes first, then of a process's
// clients (base/fair_share.h), so that a process is no better off with many clients. Of a user who is not the server's
// own, all processes count as one, as do those of another PID namespace.
//
// Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fair_share.h"

namespace flashmob::vfio {

class ClientBudgets {
 public:
  ClientBudgets(std::size_t mappings, std::size_t descriptors)
      : mappings_(mappings, kMost), descriptors_(descriptors, kMost) {}
  // Of this process. Mappings: a third of what the kernel allows it, because one that is cut short becomes two.
  // Descriptors: half of its limit.
  static ClientBudgets& of_process();

 private:
  friend class ClientShare;
  static constexpr std::uint64_t kMost = 4;
  struct Process {
    FairShare::Holder mappings, descriptors;
  };
  using Key = std::pair<bool, std::uint64_t>;  // a user, or a process

  std::shared_ptr<Process> process_of(pid_t pid, uid_t uid);

  std::mutex mutex_;
  FairShare mappings_, descriptors_;
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

  // One more; false if that is more than its share.
  bool take_mapping() { return take(budgets_.mappings_, mappings_); }
  bool take_descriptor() { return take(budgets_.descriptors_, descriptors_); }
  void give_mapping() { give(budgets_.mappings_, mappings_); }
  void give_descriptor() { give(budgets_.descriptors_, descriptors_); }

 private:
  bool take(FairShare& share, FairShare::Holder& holder) {
    const std::lock_guard lock(budgets_.mutex_);
    return share.take(holder, 1) == FairShare::Answer::given;
  }
  void give(FairShare& share, FairShare::Holder& holder) {
    const std::lock_guard lock(budgets_.mutex_);
    share.give(holder, 1);
  }

  ClientBudgets& budgets_;
  const std::shared_ptr<ClientBudgets::Process> process_;
  FairShare::Holder mappings_, descriptors_;
};

}  // namespace flashmob::vfio
