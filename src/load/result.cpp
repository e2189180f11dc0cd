#include "load/result.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <thread>

#include "base/json.h"
#include "driver/names.h"
#include "load/trace_summary.h"
#include "timing/registry.h"

namespace flashmob::load {
namespace {

// `mean` and `max` are given apart where they are known exactly and the histogram is a sample.
void histogram_field(JsonWriter& json, const char* key, const Histogram& histogram, bool full, double mean,
                     std::uint64_t max) {
  json.begin_object(key).field("mean", mean);
  if (full) json.field("min", histogram.min());
  json.field("p50", histogram.quantile(0.5));
  if (full) json.field("p90", histogram.quantile(0.9));
  json.field("p99", histogram.quantile(0.99)).field("p999", histogram.quantile(0.999));
  if (full) json.field("p9999", histogram.quantile(0.9999)).field("p99999", histogram.quantile(0.99999));
  json.field("max", max).end_object();
}

void spans_field(JsonWriter& json, const char* key, const SpanSums& spans, double seconds) {
  json.begin_object(key)
      .field("count", spans.count)
      .field("longest_ns", spans.longest_ns)
      // A span may reach beyond the measured time at either end.
      .field("share", seconds > 0 ? std::min(1.0, static_cast<double>(spans.total_ns) / 1e9 / seconds) : 0)
      .end_object();
}

void tolerance_field(JsonWriter& json, const DeviceReport::Tolerance& tolerance) {
  json.begin_object("tolerance")
      .field("iops_share", tolerance.iops_share)
      .field("mean_ns", tolerance.mean_ns)
      .field("p99_ns", tolerance.p99_ns);
  const auto perhaps = [&json](const char* key, const std::optional<double>& ns) {
    if (ns)
      json.field(key, *ns);
    else
      json.null_field(key);
  };
  perhaps("read_mean_ns", tolerance.read_mean_ns);
  perhaps("read_p99_ns", tolerance.read_p99_ns);
  perhaps("write_mean_ns", tolerance.write_mean_ns);
  perhaps("write_p99_ns", tolerance.write_p99_ns);
  json.field("latency_share", tolerance.latency_share).end_object();
}

// What only the device's own engine knows.
void device_times_field(JsonWriter& json, const DeviceReport& report, double seconds) {
  if (!report.own) {
    for (const char* key :
         {"target_ns", "processing_ns", "lateness_ns", "lateness_no_gaps_ns", "fetch_wait_ns", "error_bound_ns", "gaps",
          "long_work", "poll_gap_max_ns", "late_by_copy_share", "backlog_share", "busy_share", "path_ns", "tolerance"})
      json.null_field(key);
    return;
  }
  histogram_field(json, "target_ns", *report.target_ns, false, report.target_mean_ns, report.target_ns->max());
  histogram_field(json, "processing_ns", *report.processing_ns, false, report.target_mean_ns + report.lateness_mean_ns,
                  report.processing_ns->max());
  histogram_field(json, "lateness_ns", *report.lateness_ns, false, report.lateness_mean_ns, report.lateness_max_ns);
  const Histogram& calm = *report.lateness_no_gaps_ns;
  histogram_field(json, "lateness_no_gaps_ns", calm, false, calm.mean(), calm.max());
  const Histogram& wait = *report.fetch_wait_ns;
  histogram_field(json, "fetch_wait_ns", wait, false, wait.mean(), wait.max());
  json.begin_object("error_bound_ns")
      .field("mean", report.error_bound.mean_ns)
      .field("p50", report.error_bound.p50_ns)
      .field("p99", report.error_bound.p99_ns)
      .field("p999", report.error_bound.p999_ns)
      .field("max", report.error_bound.max_ns)
      .end_object();
  const double span_s = report.span_ns != 0 ? static_cast<double>(report.span_ns) / 1e9 : seconds;
  spans_field(json, "gaps", report.gaps, span_s);
  spans_field(json, "long_work", report.long_work, span_s);
  json.field("poll_gap_max_ns", report.poll_gap_max_ns)
      .field("late_by_copy_share", report.late_by_copy_share)
      .field("backlog_share", report.backlog_share)
      .field("busy_share", report.busy_share)
      .field("path_ns", report.path_ns);
  tolerance_field(json, report.tolerance);
}

// What an ideal host would have seen of the model.
void yardstick_field(JsonWriter& json, const Yardstick* model) {
  if (model == nullptr) {
    json.null_field("model_iops").null_field("model");
    return;
  }
  json.field("model_iops", model->iops).begin_object("model").field("iops", model->iops);
  histogram_field(json, "latency_ns", model->latency_ns, false, model->latency_ns.mean(), model->latency_ns.max());
  constexpr const char* kNames[kDirections] = {"read_latency_ns", "write_latency_ns"};
  for (std::size_t kind = 0; kind < kDirections; ++kind) {
    const Histogram& one = model->direction_ns[kind];
    if (one.count() == 0)
      json.null_field(kNames[kind]);
    else
      histogram_field(json, kNames[kind], one, false, one.mean(), one.max());
  }
  const auto [reads, writes] = model->direction_allowance;
  json.begin_object("allowance")
      .field("iops_share", model->allowance.iops_share)
      .field("edge_share", model->allowance.edge_share)
      .field("mean_ns", model->allowance.mean_ns)
      .field("p99_ns", model->allowance.p99_ns)
      .field("read_mean_ns", reads.mean_ns)
      .field("read_p99_ns", reads.p99_ns)
      .field("write_mean_ns", writes.mean_ns)
      .field("write_p99_ns", writes.p99_ns)
      .end_object()
      .end_object();
}

// What the medium has done in the measured time.
void flash_field(JsonWriter& json, const std::optional<timing::FlashCounters>& flash) {
  if (!flash) {
    json.null_field("flash");
    return;
  }
  json.begin_object("flash")
      .field("write_amplification", flash->write_amplification())
      .field("host_written_bytes", flash->host_written_bytes)
      .field("joined_bytes", flash->joined_bytes)
      .field("filled_bytes", flash->filled_bytes)
      .field("moved_bytes", flash->moved_bytes)
      .field("padded_bytes", flash->padded_bytes)
      .field("erased_superblocks", flash->erased_superblocks)
      .field("flash_reads", flash->flash_reads)
      .field("buffer_reads", flash->buffer_reads)
      .field("unwritten_reads", flash->unwritten_reads)
      .field("cached_bytes", flash->cached_bytes)
      .field("idle_moved_bytes", flash->idle_moved_bytes)
      .field("levelled_superblocks", flash->levelled_superblocks)
      .field("fewest_erases", flash->fewest_erases)
      .field("most_erases", flash->most_erases)
      .field("mean_erases", flash->mean_erases)
      .end_object();
}

// Reads, or writes, by themselves.
void kind_field(JsonWriter& json, const char* key, const KindStats& kind, double seconds) {
  if (kind.latency_ns.count() == 0) {
    json.null_field(key);
    return;
  }
  const auto rate = [seconds](std::uint64_t count) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; };
  json.begin_object(key).field("ios", kind.ios).field("iops", rate(kind.ios)).field("bw_bytes", rate(kind.bytes));
  histogram_field(json, "latency_ns", kind.latency_ns, true, kind.latency_ns.mean(), kind.latency_ns.max());
  json.end_object();
}

// Commands that failed, by status code type and code, as fault rules write them.
void errors_field(JsonWriter& json, const JobStats& stats) {
  constexpr std::uint16_t kTypeAndCode = 0x7FF;
  std::map<std::uint16_t, std::uint64_t> errors;
  for (const auto& [status, count] : stats.errors) errors[status & kTypeAndCode] += count;
  const auto code = [](std::uint16_t status) {
    char text[16];
    std::snprintf(text, sizeof(text), "0x%x", status);
    return std::string(text);
  };
  const double all = static_cast<double>(stats.failed + stats.ios);
  json.begin_object("failed")
      .field("ios", stats.failed)
      .field("share", all > 0 ? static_cast<double>(stats.failed) / all : 0)
      .end_object();
  json.begin_object("errors");
  for (const auto& [status, count] : errors) json.field(code(status), count);
  json.end_object().begin_object("error_names");
  for (const auto& [status, count] : errors)
    json.field(code(status), driver::status_name(static_cast<nvme::Status>(status)));
  json.end_object();
}

// A curve needs a thousandth of resolution in its body. In its tails each point leaves a tenth less above it (or below)
// than the one before, down to the last request.
bool is_worth_a_point(double share, double last_share) {
  const double step = share - last_share;
  return step >= 0.001 || step >= 0.1 * (1 - last_share) || (share < 0.01 && step >= 0.1 * share);
}

void cdf_field(JsonWriter& json, const Histogram& histogram) {
  const std::uint64_t total = histogram.count();
  std::uint64_t below = 0;
  json.begin_array("latency_cdf");
  double last_share = -1;
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets && total != 0; ++bucket) {
    const std::uint64_t count = histogram.bucket_count(bucket);
    if (count == 0) continue;
    below += count;
    const double share = static_cast<double>(below) / static_cast<double>(total);
    if (!is_worth_a_point(share, last_share) && below != total) continue;
    last_share = share;
    const std::uint64_t middle = Histogram::bucket_low(bucket) + Histogram::bucket_width(bucket) / 2;
    json.begin_array().element(std::clamp(middle, histogram.min(), histogram.max())).element(share).end_array();
  }
  json.end_array();
}

std::string block_sizes_text(const BenchOptions& options) {
  if (options.block_sizes.size() == 1) return std::to_string(options.block_sizes[0].bytes);
  std::string text;
  for (const BlockSizeShare& share : options.block_sizes) {
    char part[64];
    std::snprintf(part, sizeof(part), "%s%u:%g", text.empty() ? "" : ",", share.bytes, share.weight);
    text += part;
  }
  return text;
}

void options_field(JsonWriter& json, const BenchOptions& o) {
  json.begin_object("options")
      .field("target", o.target)
      .field("rw", o.rw)
      .field("read_share", o.read_share)
      .field("bs", block_sizes_text(o))
      .field("distribution", o.distribution)
      .field("queues", o.queues)
      .field("queue_depth", o.queue_depth)
      .field("queue_entries", o.queue_entries)
      .field("requesters", o.requesters)
      .field("rate_iops", o.rate_iops)
      .field("arrivals", o.arrivals)
      .field("think_time_ns", o.think_time_ns)
      .field("threads", o.threads)
      .field("completion", o.completion)
      .field("ramp_ns", o.ramp_ns)
      .field("runtime_ns", o.runtime_ns)
      .field("ios", o.ios)
      .field("verify_percent", o.verify_percent)
      .field("fill", o.fill)
      .field("precondition", o.precondition)
      .field("placement", o.placement)
      .field("trace_path", o.trace_path)
      .field("trace_format", o.trace_format)
      .field("trace_disk", o.trace_disk)
      .field("trace_as_fast", o.trace_as_fast)
      .field("virtual_poll_ns", o.virtual_poll_ns)
      .end_object();
}

// All keys of a table of the configuration, under its name; null where it means nothing.
template <class Config>
void table_field(JsonWriter& json, const char* name, const Config& table, bool has_meaning) {
  if (!has_meaning) {
    json.null_field(name);
    return;
  }
  json.begin_object(name);
  for_each_key(table, [&json]<class Value>(const char* key, const Value& value) {
    if constexpr (std::is_same_v<Value, std::vector<std::uint32_t>> ||
                  std::is_same_v<Value, std::vector<std::uint64_t>>) {
      json.begin_array(key);
      for (const std::uint64_t one : value) json.element(one);
      json.end_array();
    } else {
      json.field(key, value);
    }
  });
  json.end_object();
}

// What each model reads; keys of another are null.
void timing_field(JsonWriter& json, const TimingConfig& timing) {
  const bool rates = timing::model_of(timing).takes_rates;
  json.begin_object("timing").field("model", timing.model);
  const auto own = [&](const char* key, auto value) {
    if (rates)
      json.field(key, value);
    else
      json.null_field(key);
  };
  own("read_iops", timing.read_iops);
  own("write_iops", timing.write_iops);
  own("read_latency_ns", timing.read_latency_ns);
  own("write_latency_ns", timing.write_latency_ns);
  own("instances", timing.instances);
  json.field("unit_bytes", timing.unit_bytes);
  own("read_bytes_per_s", timing.read_bytes_per_s);
  own("write_bytes_per_s", timing.write_bytes_per_s);
  json.field("link_bytes_per_s", timing.link_bytes_per_s);
  own("per_request_updates", timing.per_request_updates);
  table_field(json, "nand", timing.nand, timing::model_of(timing).takes_nand);
  json.end_object();
}

// Model and engine of the device, where it is the benchmark's own.
void model_field(JsonWriter& json, const DeviceConfig& d, bool own) {
  if (!own) {
    json.null_field("timing").null_field("engine");
    return;
  }
  timing_field(json, d.timing);
  json.begin_object("engine")
      .field("kind", d.engine.kind)
      .field("sms", d.engine.sms)
      .field("units", d.engine.units)
      .field("workers", d.engine.workers)
      .field("fetch_limit", d.engine.fetch_limit)
      .field("copy", d.engine.copy)
      .end_object();
}

// What the verdict was judged by; another process judges its device by its own thresholds.
void fidelity_field(JsonWriter& json, const FidelityConfig& f, bool own) {
  if (!own) {
    json.null_field("fidelity");
    return;
  }
  json.begin_object("fidelity")
      .field("max_iops_error", f.max_iops_error)
      .field("max_error_ns", f.max_error_ns)
      .field("max_error_share", f.max_error_share)
      .field("gap_ns", f.gap_ns)
      .end_object();
}

void device_field(JsonWriter& json, const DeviceConfig& d, bool own) {
  json.begin_object("device").field("profile", d.profile).field("seed", d.seed);
  model_field(json, d, own);
  fidelity_field(json, d.fidelity, own);
  json.begin_array("namespaces");
  for (const NamespaceConfig& ns : d.subsystem.namespaces) {
    json.begin_object().field("size_bytes", ns.size_bytes).field("lba_bytes", ns.lba_bytes);
    if (own)
      json.field("media", ns.media).field("command_set", ns.command_set);
    else
      json.null_field("media").null_field("command_set");
    table_field(json, "zoned", ns.zoned, own && ns.command_set == "zns");
    table_field(json, "kv", ns.kv, own && ns.command_set == "kv");
    json.end_object();
  }
  json.end_array();
  table_field(json, "placement", d.subsystem.placement, own && d.subsystem.placement.handles != 0);
  json.end_object();
}

void provenance_field(JsonWriter& json, const DeviceConfig& device, const BenchOptions& options,
                      const Provenance& provenance) {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  if (gmtime_r(&now, &utc) != nullptr) std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
  json.begin_object("provenance")
      .field("version", FLASHMOB_VERSION)
      .field("command", options.command)
      .field("profile", device.profile)
      .field("seed", device.seed)
      .field("date", date)
      .field("cpu", cpu_model())
      .field("cores", std::thread::hardware_concurrency())
      .field("kernel", kernel_release())
      .field("tsc_ghz", provenance.tsc_ghz)
      .field("clock_drift_ppm", provenance.clock_drift_ppm)
      .field("fill_seconds", provenance.fill_seconds);
  if (provenance.window) {
    json.begin_object("window")
        .field("begin_ns", provenance.window->begin_ns)
        .field("end_ns", provenance.window->end_ns)
        .field("realtime_ahead_ns", provenance.window->realtime_ahead_ns)
        .end_object();
  } else {
    json.null_field("window");
  }
  if (provenance.waits) {
    json.begin_object("waits")
        .field("cpu_ns_per_io", provenance.waits->cpu_ns_per_io)
        .field("sleeps", provenance.waits->sleeps)
        .field("woken", provenance.waits->woken)
        .end_object();
  } else {
    json.null_field("waits");
  }
  json.begin_object("cpu_share");
  for (const auto& [name, share] : provenance.cpu_share) json.field(name, share);
  json.end_object();
  if (provenance.copy_engine.empty()) {
    json.null_field("copy");
  } else {
    json.begin_object("copy").field("engine", provenance.copy_engine);
    for (const auto& [name, count] : provenance.copy_counts) json.field(name, count);
    json.end_object();
  }
  json.end_object();
}

}  // namespace

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string kernel_release() {
  utsname name{};
  return uname(&name) == 0 ? std::string(name.release) : "unknown";
}

std::string result_json(const DeviceConfig& device, const BenchOptions& options, const JobStats& stats,
                        const DeviceReport& report, const Provenance& provenance) {
  const double seconds = static_cast<double>(stats.ended_ns - stats.started_ns) / 1e9;
  const double iops = seconds > 0 ? static_cast<double>(stats.ios) / seconds : 0;
  JsonWriter json;
  json.begin_object()
      .field("schema", "flashmob-result")
      .field("schema_version", kResultSchemaVersion)
      .field("jobname", device.profile)
      .field("rw", options.rw)
      .field("bs", block_sizes_text(options))
      .field("iops", iops)
      .field("bw_bytes", seconds > 0 ? static_cast<double>(stats.bytes) / seconds : 0);
  json.field("ios", stats.ios)
      .field("read_ios", stats.of(IoKind::read).ios)
      .field("write_ios", stats.of(IoKind::write).ios);
  yardstick_field(json, report.model);
  histogram_field(json, "latency_ns", stats.latency_ns, true, stats.latency_ns.mean(), stats.latency_ns.max());
  kind_field(json, "read", stats.of(IoKind::read), seconds);
  kind_field(json, "write", stats.of(IoKind::write), seconds);
  device_times_field(json, report, seconds);
  flash_field(json, report.flash);
  spans_field(json, "host_gaps", stats.gaps, seconds);
  spans_field(json, "host_long_work", stats.long_work, seconds);
  json.begin_object("unfinished")
      .field("outstanding", stats.outstanding)
      .field("backlog", stats.backlog)
      .field("oldest_ns", stats.oldest_ns)
      .end_object();
  json.field("verdict", report.verdict)
      .field("verdict_cause", report.verdict_cause)
      .field("data_moved", device.engine.move_data)
      .field("verified", stats.verified)
      .field("verify_crowded", stats.crowded)
      .field("verify_errors", stats.verify_errors)
      .field("verify_first_error", stats.first_error)
      .field("not_verified", report.not_verified);
  errors_field(json, stats);
  json.field("unanswered", stats.unanswered);
  json.begin_array("faults");
  for (const FaultCount& fault : report.faults)
    json.begin_object()
        .field("rule", fault.rule)
        .field("matched", fault.matched)
        .field("injected", fault.injected)
        .end_object();
  json.end_array();
  json.field("cancelled", report.cancelled).field("device_failed", report.device_failed);
  json.field("clock", options.clock).field("runtime_seconds", seconds);
  cdf_field(json, stats.latency_ns);
  trace_field(json, report.trace == nullptr ? TraceSummary{} : *report.trace);
  options_field(json, options);
  device_field(json, device, report.own);
  json.field("wall_seconds", provenance.wall_seconds);
  provenance_field(json, device, options, provenance);
  json.end_object();
  return json.text();
}

}  // namespace flashmob::load
