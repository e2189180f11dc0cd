// An emulated SSD that other processes attach to: by vfio-user as a PCIe device, by NVMe/TCP over a network.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flashmob/config.h"
#include "flashmob/faults.h"

namespace flashmob {

// A host that must prove who it is: by DH-HMAC-CHAP, with secrets as nvme-cli's gen-dhchap-key writes them, by TLS, or
// by both.
struct HostSecret {
  std::string host_nqn;
  std::string host_key;        // "DHHC-1:..."; empty: not by DH-HMAC-CHAP
  std::string controller_key;  // empty: the host does not ask us to prove who we are
  std::string tls_key;         // "NVMeTLSkey-1:...", as gen-tls-key writes it; empty: TLS is no must for this host
};

// What an NVMe/TCP host of this name may do, and what it sees. It may connect, as those of host_nqns may.
struct HostRule {
  std::string host_nqn;
  std::string allow;                      // as ServerOptions::tcp_allow; empty: that
  std::vector<std::uint32_t> namespaces;  // the identifiers of those that it sees; empty: all
};

// The doors of one SSD; at least one, unless it `lends`.
struct ServerOptions {
  // Whether leases may be opened. They are then all that there is: nobody else may write under them.
  bool lends = false;
  // The UNIX socket of the vfio-user door; its folder is made where it is missing. Empty: no such door.
  std::string vfio_user_path;
  // Who may connect to it: "0600", this user; "0660", its group, too. Nothing lets everybody in. Empty: "0600".
  std::string vfio_user_mode;
  // Where NVMe/TCP listens: "127.0.0.1:4420", "[::1]:4420"; port 0 takes a free one. Empty: no such door.
  std::string tcp_address;
  // NVMe/TCP hosts that may connect; empty: every host.
  std::vector<std::string> host_nqns;
  std::vector<HostSecret> host_secrets;
  // What hosts of each door may do, with all that those before it may (docs/decisions/0010): "read-only"; "io";
  // "admin": save features, and see what belongs to other hosts; "manage": format, create, delete, attach and protect
  // namespaces, and reset the subsystem. Empty: "manage" by vfio-user where no namespace is shared, else "admin".
  std::string vfio_user_allow;
  std::string tcp_allow;
  std::vector<HostRule> host_rules;
  // TLS on the NVMe/TCP door: "allowed" or "required"; empty: none.
  std::string tls;
  std::string tls_key;  // of hosts without one of their own
};

// A part of an SSD for one consumer, who finds a drive of its own at a vfio-user socket: docs/decisions/0022.
struct LeaseOptions {
  std::string name;  // no other lease of the SSD has it
  std::string vfio_user_path;  // as ServerOptions::vfio_user_path, of this lease alone
  // The drive's identity: no other may have it.
  std::string nqn, serial;
  // The part of the SSD: whole blocks, and whole units of its timing model (timing.unit_bytes). 0: to the end.
  std::uint32_t nsid = 1;
  std::uint64_t first_byte = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t queue_pairs = 1;
  bool is_read_only = false;
  // 0: no limit; up to 10^12. Of bytes, blocks that a command names count, and of a Copy the most that one may copy.
  std::uint64_t max_commands_per_s = 0;
  std::uint64_t max_bytes_per_s = 0;
  std::uint32_t uid = 0;  // the one user who may attach
};

// What a lease does now, and has done since it was opened.
struct LeaseStats {
  std::string name;
  std::uint32_t uid = 0;
  std::uint32_t nsid = 0;
  std::uint64_t first_byte = 0, size_bytes = 0;
  std::uint32_t queue_pairs = 0;
  bool is_read_only = false;
  bool is_attached = false;
  std::uint64_t attached_ever = 0;  // consumers, one after the other
  std::uint64_t refused = 0;  // those who were turned away: others' users, and whoever came while somebody was there
  std::uint64_t read_commands = 0, write_commands = 0, read_bytes = 0, written_bytes = 0;
};

// What was asked of an SSD, a second.
struct IoRates {
  // Commands of every kind, as they were fetched; where reads or writes that take a while were carried out that were
  // fetched in the interval before, no fewer than those.
  double iops = 0;
  double read_iops = 0, write_iops = 0;
  double read_bytes_per_s = 0, written_bytes_per_s = 0;
};

// One attached host: its own controller of the shared subsystem. Counters since it attached, rates since the previous
// snapshot.
struct HostStats : IoRates {
  std::string door;  // "vfio-user", "nvme-tcp"
  std::string host;  // a host NQN, or a process: UTF-8 without control characters, whatever the host said
  std::uint32_t controller_id = 0;
  std::string state;         // "ready", "disabled", ...
  std::uint32_t queues = 0;  // I/O queue pairs
  std::uint64_t read_commands = 0, write_commands = 0, read_bytes = 0, written_bytes = 0;
};

// Hosts that left since the previous snapshot, all together: what they did in that time before.
struct LeftHosts : IoRates {
  std::uint64_t count = 0;
};

// A distribution of times. Zero where nothing was measured.
struct TimeFigures {
  double mean_ns = 0;
  std::uint64_t p50_ns = 0, p99_ns = 0, p999_ns = 0;
};

// What an SSD does: rates and figures of the interval since the previous snapshot, and sums since it was started. Its
// rates are the sums of its hosts', those that left included.
struct ServerStats : IoRates {
  double uptime_s = 0;
  double interval_s = 0;  // what all rates are of
  std::vector<HostStats> hosts;  // attached now
  std::vector<LeaseStats> leases;  // by name
  LeftHosts left;

  // The interval.
  double queue_depth = 0;         // commands in the device, on average (arrivals times time in the device)
  TimeFigures latency;            // from fetch to completion
  TimeFigures target;             // what the timing model asked for
  TimeFigures lateness;           // completion after the target
  TimeFigures error_bound;  // upper bound of what the emulator added: doors' threads, doorbell to fetch, lateness
  TimeFigures door_delay;  // the part of it that the NVMe/TCP door's thread added; all 0 without one
  double backlog_share = 0;  // fetches that left commands behind
  double busy_share = 0;  // of the busiest service unit's time
  double door_busy_share = 0;  // of the NVMe/TCP door's thread; 0 without one
  std::string verdict;  // of the interval: VALID, VALID (lateness only), INVALID, NONE
  std::string verdict_cause;
  // What VALID allows: the larger of its tolerances of mean and p99, as a share of the target's; 0 without a model.
  double tolerance_share = 0;

  // Since the start.
  std::uint64_t completions = 0;
  std::uint64_t read_commands = 0, write_commands = 0, read_bytes = 0, written_bytes = 0;
  std::uint64_t hosts_seen = 0;
  TimeFigures total_latency;
  TimeFigures total_lateness;
  TimeFigures total_error_bound;
  TimeFigures total_door_delay;
  std::uint64_t lateness_max_ns = 0;
  std::uint64_t gap_count = 0;
  std::uint64_t gap_longest_ns = 0;
  std::vector<FaultCount> faults;  // the rules in force
  std::string verdict_so_far;
  std::string verdict_so_far_cause;
  double tolerance_share_so_far = 0;
};

// One SSD with its doors, in this process. Thread-safe; stats() is meant for one caller, because rates are those since
// the previous call.
class Server {
 public:
  // Makes the device. Throws ConfigError.
  Server(const DeviceConfig& device, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Opens the doors and serves hosts until stop(). Throws ConfigError where a door cannot be opened.
  void start();
  // Closes the doors, takes leave of every host and stops the device, for good. Idempotent.
  void stop();

  ServerStats stats();
  // Shows these faults from now on instead of those before; none ends them (docs/guide/faults.md). Any thread.
  // Throws ConfigError, and then nothing has changed.
  void set_faults(const std::vector<std::string>& rules);
  // Opens a lease, from start() to stop(). Leases of one range may only read. Any thread. Throws ConfigError.
  void open_lease(const LeaseOptions& options);
  // Takes leave of its consumer, whose commands are over when this returns: its memory is touched no more. Any thread;
  // a name that no lease has is nobody's.
  void close_lease(const std::string& name);
  std::vector<LeaseStats> leases() const;
  // The size of a namespace; 0: there is none.
  std::uint64_t namespace_bytes(std::uint32_t nsid);
  // How to reach the doors while it is started: "vfio-user:/run/flashmob/ssd0",
  // "nvme-tcp:127.0.0.1:4420/nqn.2014-08...".
  std::vector<std::string> addresses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashmob
