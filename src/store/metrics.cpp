#include "store/metrics.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace blend {

namespace {

void add_remote(const RemoteStat& s, std::vector<Metric>& out) {
  if (!s.configured) return;
  const auto add = [&](const char* name, const char* labels, const char* help, bool counter,
                       double value) {
    out.push_back({name, labels, help, counter, value});
  };
  const auto count = [&](const char* name, const char* help, uint64_t value) {
    add(name, "", help, true, static_cast<double>(value));
  };
  const auto seconds = [&](const char* name, const char* labels, const char* help, uint64_t us) {
    add(name, labels, help, false, static_cast<double>(us) * 1e-6);
  };
  add("blend_remote_reachable", "", "1: the remote tier is asked; 0: it is left alone for a while",
      false, s.reachable ? 1 : 0);
  count("blend_remote_hits_total", "Misses of the store that the remote tier had", s.hits);
  count("blend_remote_misses_total", "Look-ups that the remote tier did not answer with a chunk",
        s.misses);
  count("blend_remote_late_total", "Of these, those that were not answered in time", s.late);
  count("blend_remote_read_bytes_total", "Bytes that came from there", s.read_bytes);
  count("blend_remote_written_bytes_total", "Bytes that went there", s.written_bytes);
  count("blend_remote_written_chunks_total", "Chunks put there", s.written);
  count("blend_remote_existing_chunks_total", "Chunks that were there already", s.existed);
  count("blend_remote_dropped_chunks_total",
        "Chunks not put or not fetched, for want of room or of "
        "the server",
        s.dropped);
  count("blend_remote_damaged_total", "Chunks there that were damaged or not whole", s.damaged);
  count("blend_remote_errors_total", "Requests that failed", s.errors);
  count("blend_remote_downs_total", "Times that a server was left alone for a while", s.downs);
  add("blend_remote_queued_chunks", "", "Chunks that are still to be put there", false,
      static_cast<double>(s.queued));
  add("blend_remote_arriving_bytes", "", "Host memory of chunks on their way from there", false,
      static_cast<double>(s.arriving_bytes));
  const char* const look_up = "How long look-ups took";
  seconds("blend_remote_look_up_seconds", "quantile=\"0.5\"", look_up, s.look_up_p50_us);
  seconds("blend_remote_look_up_seconds", "quantile=\"0.99\"", look_up, s.look_up_p99_us);
  const char* const segment = "How long segments took to come";
  seconds("blend_remote_segment_seconds", "quantile=\"0.5\"", segment, s.segment_p50_us);
  seconds("blend_remote_segment_seconds", "quantile=\"0.99\"", segment, s.segment_p99_us);
  add("blend_remote_read_bytes_per_second", "", "Rate at which segments come, smoothed", false,
      s.bytes_per_s);
}

}  // namespace

std::vector<Metric> store_metrics(const StoreStat& s, double read_bytes_per_s) {
  const auto gauge = [](const char* name, const char* labels, const char* help, uint64_t value) {
    return Metric{name, labels, help, false, static_cast<double>(value)};
  };
  const auto counter = [](const char* name, const char* labels, const char* help, uint64_t value) {
    return Metric{name, labels, help, true, static_cast<double>(value)};
  };
  const TextTotals texts = s.texts.value_or(TextTotals{});
  const char* const hits =
      "Look-ups that found their chunk, by the tier that served it, since the "
      "store was opened by this process";
  const char* const all_hits =
      "The same of all processes since the store was made; written in "
      "batches";
  std::vector<Metric> metrics = {
      gauge("blend_store_chunks", "", "Chunks that are stored", s.n_chunks),
      gauge("blend_store_tokens", "", "Tokens of the stored chunks", s.n_tokens),
      gauge("blend_store_kv_bytes", "", "K and V before the codec", s.bytes),
      gauge("blend_store_stored_bytes", "", "What the quota counts", s.stored_bytes),
      gauge("blend_store_quota_bytes", "", "The quota", s.quota_bytes),
      gauge("blend_store_file_bytes", "", "The data file", s.file_bytes),
      gauge("blend_store_pinned_chunks", "", "Chunks that may not be evicted",
            s.totals.pinned_chunks),
      gauge("blend_store_pinned_bytes", "", "Stored bytes of pinned chunks", s.totals.pinned_bytes),
      gauge("blend_store_texts", "", "Different texts of the stored chunks", texts.n_texts),
      gauge("blend_store_varied_texts", "", "Texts that have variants", texts.n_varied),
      gauge("blend_store_variants", "", "Chunks besides the plain record of their text",
            texts.n_variants),
      gauge("blend_store_variant_bytes", "", "Stored bytes of variants", texts.variant_bytes),
      gauge("blend_store_ram_bytes", "", "Layers held in host memory", s.ram_bytes),
      gauge("blend_store_ram_budget_bytes", "", "Limit of blend_store_ram_bytes",
            s.ram_budget_bytes),
      gauge("blend_store_ram_chunks", "", "Chunks of which layers are in host memory",
            s.ram_chunks),
      gauge("blend_store_queue_bytes", "", "Puts on their way to the disk", s.queue_bytes),
      gauge("blend_store_oldest_use_seconds", "", "Unix time of the last use of the oldest chunk",
            s.oldest_use_us / 1'000'000),
      counter("blend_store_hits_total", "tier=\"ram\"", hits, s.ram_hits),
      counter("blend_store_hits_total", "tier=\"disk\"", hits, s.hits - s.ram_hits),
      counter("blend_store_variant_hits_total", "", "Hits that variants served", s.variant_hits),
      counter("blend_store_misses_total", "", "Look-ups that found nothing", s.misses),
      counter("blend_store_all_hits_total", "tier=\"ram\"", all_hits, s.totals.ram_hits),
      counter("blend_store_all_hits_total", "tier=\"disk\"", all_hits, s.totals.disk_hits),
      counter("blend_store_all_variant_hits_total", "",
              "Hits of all processes that variants served", texts.variant_hits),
      counter("blend_store_all_misses_total", "", "Misses of all processes", s.totals.misses),
      counter("blend_store_evicted_chunks_total", "", "Chunks evicted for the quota or their age",
              s.totals.evicted_chunks),
      counter("blend_store_evicted_bytes_total", "", "Their stored bytes", s.totals.evicted_bytes),
      counter("blend_store_expired_chunks_total", "", "Evicted chunks that were too old",
              s.totals.expired_chunks),
      counter("blend_store_prefetched_chunks_total", "", "Chunks read ahead by hints",
              s.prefetched),
      counter("blend_store_written_chunks_total", "", "Chunks put by this process", s.written),
      counter("blend_store_write_errors_total", "", "Background puts that failed", s.write_errors),
      counter("blend_store_damaged_total", "", "Reads that failed their check", s.damaged),
      {"blend_store_read_bytes_per_second", "", "Rate of the layers read by fuses, smoothed", false,
       read_bytes_per_s},
  };
  add_remote(s.remote, metrics);
  return metrics;
}

std::string prometheus_text(const std::vector<Metric>& metrics, std::string_view store) {
  std::string label = "store=\"";
  for (const char c : store) {
    if (c == '\\' || c == '"') label += '\\';
    if (c == '\n') {
      label += "\\n";
    } else {
      label += c;
    }
  }
  label += '"';
  std::string out;
  const char* previous = "";
  for (const Metric& m : metrics) {
    if (std::strcmp(m.name, previous) != 0) {
      out.append("# HELP ").append(m.name).append(" ").append(m.help).append("\n");
      out.append("# TYPE ").append(m.name).append(m.counter ? " counter\n" : " gauge\n");
      previous = m.name;
    }
    char value[40];
    // Whole numbers with all digits: they are bytes and counts.
    const bool whole = m.value == std::floor(m.value) && std::fabs(m.value) < 9e15;
    std::snprintf(value, sizeof value, whole ? "%.0f" : "%.17g", m.value);
    out.append(m.name).append("{").append(label);
    if (*m.labels != '\0') out.append(",").append(m.labels);
    out.append("} ").append(value).append("\n");
  }
  return out;
}

}  // namespace blend
