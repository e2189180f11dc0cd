#include "interfaces/usage.h"

#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "interfaces/interface.h"

namespace flashmob::interfaces {
namespace {

std::uint64_t ns_of(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_usec) * 1'000;
}

int open_counter(std::uint64_t which) {
  perf_event_attr wanted{};
  wanted.size = sizeof(wanted);
  wanted.type = PERF_TYPE_HARDWARE;
  wanted.config = which;
  wanted.inherit = 1;
  return static_cast<int>(::syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

std::string why_no_counters(int error) {
  std::string text = errno_text("perf_event_open", error);
  if (error == EACCES || error == EPERM)
    return text +
           "; the kernel keeps its own cycles from this user (kernel.perf_event_paranoid, or a container's rules)";
  if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
    return text + "; this processor, or the virtual machine, shows no such counters";
  return text;
}

std::uint64_t value_of(int counter) {
  std::uint64_t value = 0;
  return ::read(counter, &value, sizeof(value)) == sizeof(value) ? value : 0;
}

// The number after a key of /proc/PID/status.
std::uint64_t number_after(const std::string& text, std::string_view key) {
  const std::size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size(), nullptr, 10);
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  // A thread may end between this and the read, which then fails: an iterator of the buffer would throw.
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

ThreadUsage& ThreadUsage::operator+=(const ThreadUsage& other) {
  cpu_ns += other.cpu_ns;
  user_ns += other.user_ns;
  system_ns += other.system_ns;
  voluntary_switches += other.voluntary_switches;
  involuntary_switches += other.involuntary_switches;
  minor_faults += other.minor_faults;
  major_faults += other.major_faults;
  return *this;
}

ThreadUsage ThreadUsage::operator-(const ThreadUsage& other) const {
  return {cpu_ns - other.cpu_ns,
          user_ns - other.user_ns,
          system_ns - other.system_ns,
          voluntary_switches - other.voluntary_switches,
          involuntary_switches - other.involuntary_switches,
          minor_faults - other.minor_faults,
          major_faults - other.major_faults};
}

ThreadUsage usage_of_this_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  timespec cpu{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  return {static_cast<std::uint64_t>(cpu.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(cpu.tv_nsec),
          ns_of(usage.ru_utime),
          ns_of(usage.ru_stime),
          static_cast<std::uint64_t>(usage.ru_nvcsw),
          static_cast<std::uint64_t>(usage.ru_nivcsw),
          static_cast<std::uint64_t>(usage.ru_minflt),
          static_cast<std::uint64_t>(usage.ru_majflt)};
}

PerfCounters::PerfCounters() : cycles_(open_counter(PERF_COUNT_HW_CPU_CYCLES)) {
  if (cycles_ >= 0) instructions_ = open_counter(PERF_COUNT_HW_INSTRUCTIONS);
  if (cycles_ < 0 || instructions_ < 0) absent_ = why_no_counters(errno);
}

PerfCounters::~PerfCounters() {
  if (cycles_ >= 0) ::close(cycles_);
  if (instructions_ >= 0) ::close(instructions_);
}

PerfCounters::Values PerfCounters::read() const {
  if (!absent_.empty()) return {};
  return {value_of(cycles_), value_of(instructions_)};
}

std::set<pid_t> tasks_of_process() {
  std::set<pid_t> tasks;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end; at.increment(error))
    tasks.insert(static_cast<pid_t>(std::strtol(at->path().filename().c_str(), nullptr, 10)));
  return tasks;
}

Helpers helpers_beside(const std::set<pid_t>& others) {
  Helpers helpers;
  for (const pid_t task : tasks_of_process()) {
    if (others.contains(task)) continue;
    const std::filesystem::path folder = std::filesystem::path("/proc/self/task") / std::to_string(task);
    const std::string status = text_of(folder / "status");
    // The first number there is the time that it ran, in nanoseconds.
    helpers[task] = {std::strtoull(text_of(folder / "schedstat").c_str(), nullptr, 10),
                     number_after(status, "\nvoluntary_ctxt_switches:"),
                     number_after(status, "\nnonvoluntary_ctxt_switches:")};
  }
  return helpers;
}

Helper difference(const Helpers& before, const Helpers& after) {
  Helper sum;
  for (const auto& [task, now] : after) {
    const auto found = before.find(task);
    const Helper then = found != before.end() ? found->second : Helper{};
    // One that ends while it is looked at reads as zero.
    if (now.cpu_ns < then.cpu_ns || now.voluntary_switches < then.voluntary_switches ||
        now.involuntary_switches < then.involuntary_switches)
      continue;
    sum.cpu_ns += now.cpu_ns - then.cpu_ns;
    sum.voluntary_switches += now.voluntary_switches - then.voluntary_switches;
    sum.involuntary_switches += now.involuntary_switches - then.involuntary_switches;
  }
  return sum;
}

MachineUsage MachineUsage::operator-(const MachineUsage& other) const {
  // Idle time is an estimate that may step back.
  const auto less = [](std::uint64_t now, std::uint64_t then) { return now > then ? now - then : 0; };
  return {less(user_ns, other.user_ns),  less(system_ns, other.system_ns), less(interrupt_ns, other.interrupt_ns),
          less(idle_ns, other.idle_ns),  less(stolen_ns, other.stolen_ns), less(interrupts, other.interrupts),
          less(switches, other.switches)};
}

MachineUsage usage_of_machine() {
  const std::string text = text_of("/proc/stat");
  std::istringstream words(text);
  std::string name;
  // user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
  std::array<std::uint64_t, 8> ticks{};
  words >> name;
  for (std::uint64_t& value : ticks) words >> value;
  const std::uint64_t tick_ns = 1'000'000'000 / static_cast<std::uint64_t>(std::max(1l, ::sysconf(_SC_CLK_TCK)));
  return {(ticks[0] + ticks[1]) * tick_ns, ticks[2] * tick_ns, (ticks[5] + ticks[6]) * tick_ns,
          (ticks[3] + ticks[4]) * tick_ns, ticks[7] * tick_ns, number_after(text, "\nintr "),
          number_after(text, "\nctxt ")};
}

}  // namespace flashmob::interfaces
