// flashmob/interfaces.h: a run as one JSON document.
#include "flashmob/interfaces.h"

#include <limits>
#include <utility>

#include "base/json.h"
#include "interfaces/content.h"
#include "interfaces/interface.h"
#include "interfaces/run.h"

namespace flashmob {
namespace {

using interfaces::RunResult;

void latency_fields(JsonWriter& json, const Histogram& histogram) {
  json.begin_object("latency_ns").field("mean", histogram.mean()).field("min", histogram.min());
  constexpr std::pair<const char*, double> kQuantiles[] = {
      {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"p9999", 0.9999}};
  for (const auto& [name, share] : kQuantiles) json.field(name, histogram.quantile(share));
  json.field("max", histogram.max()).end_object();
  // Every bucket that has something: the lowest value that it holds, and how many.
  json.begin_array("latency_buckets");
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket)
    if (const std::uint64_t count = histogram.bucket_count(bucket); count != 0)
      json.begin_array().element(Histogram::bucket_low(bucket)).element(count).end_array();
  json.end_array();
}

void counter_fields(JsonWriter& json, const RunResult& result) {
  json.begin_object("counters");
  if (result.counters_absent.empty())
    json.field("cycles", result.counters.cycles).field("instructions", result.counters.instructions);
  else
    json.field("absent", result.counters_absent);
  json.end_object();
}

void cost_fields(JsonWriter& json, const RunResult& result) {
  const interfaces::ThreadUsage& threads = result.threads;
  json.begin_object("threads_cpu")
      .field("cpu_ns", threads.cpu_ns)
      .field("user_ns", threads.user_ns)
      .field("system_ns", threads.system_ns)
      .field("voluntary_switches", threads.voluntary_switches)
      .field("involuntary_switches", threads.involuntary_switches)
      .field("minor_faults", threads.minor_faults)
      .field("major_faults", threads.major_faults)
      .end_object();
  json.begin_object("helpers_cpu")
      .field("threads", result.helper_count)
      .field("cpu_ns", result.helpers.cpu_ns)
      .field("voluntary_switches", result.helpers.voluntary_switches)
      .field("involuntary_switches", result.helpers.involuntary_switches)
      .end_object();
  const interfaces::MachineUsage& machine = result.machine;
  json.begin_object("machine_cpu")
      .field("user_ns", machine.user_ns)
      .field("system_ns", machine.system_ns)
      .field("interrupt_ns", machine.interrupt_ns)
      .field("idle_ns", machine.idle_ns)
      .field("stolen_ns", machine.stolen_ns)
      .field("interrupts", machine.interrupts)
      .field("switches", machine.switches)
      .end_object();
  counter_fields(json, result);
}

void measured_fields(JsonWriter& json, const RunResult& result) {
  json.begin_object("window")
      .field("begin_ns", result.begin_ns)
      .field("end_ns", result.end_ns)
      .field("realtime_ahead_ns", result.realtime_ahead_ns)
      .end_object();
  const double seconds = result.seconds();
  const double none = std::numeric_limits<double>::quiet_NaN();
  json.field("cancelled", result.was_cancelled)
      .field("seconds", seconds)
      .field("ios", result.ios)
      .field("bytes", result.bytes)
      .field("iops", seconds > 0 ? static_cast<double>(result.ios) / seconds : none);
  latency_fields(json, result.latency_ns);
  json.begin_object("unfinished")
      .field("requests", result.unfinished.requests)
      .field("oldest_ns", result.unfinished.oldest_ns)
      .field("total_ns", result.unfinished.total_ns)
      .end_object();
  json.begin_object("errors");
  for (const auto& [error, count] : result.errors) json.field(interfaces::errno_name(error), count);
  json.end_object();
  json.field("short_transfers", result.short_transfers).field("wrong_reads", result.wrong_reads);
  if (result.system_calls)
    json.field("system_calls", *result.system_calls);
  else
    json.null_field("system_calls");
  cost_fields(json, result);
}

}  // namespace

std::vector<InterfaceInfo> kernel_interfaces() {
  std::vector<InterfaceInfo> infos;
  for (const interfaces::InterfaceKind& kind : interfaces::kinds())
    infos.push_back({kind.name, kind.submission, kind.completion, kind.is_synchronous});
  return infos;
}

void create_interface_file(const std::string& path, std::uint64_t size_bytes, std::uint64_t seed) {
  interfaces::create_stamped_file(path, size_bytes, seed);
}

struct InterfaceRun::Impl {
  explicit Impl(const InterfaceOptions& given) : options(given), run(options) {}

  InterfaceOptions options;
  interfaces::MeasuredRun run;
};

InterfaceRun::InterfaceRun(const InterfaceOptions& options) {
  interfaces::check_options(options);
  impl_ = std::make_unique<Impl>(options);
}

InterfaceRun::~InterfaceRun() = default;

std::string InterfaceRun::run() {
  const std::unique_ptr<RunResult> result = impl_->run.run();
  JsonWriter json;
  json.begin_object().field("supported", result->unsupported.empty());
  if (result->unsupported.empty())
    measured_fields(json, *result);
  else
    json.field("reason", result->unsupported);
  json.end_object();
  return json.text();
}

void InterfaceRun::cancel() { impl_->run.cancel(); }

}  // namespace flashmob
