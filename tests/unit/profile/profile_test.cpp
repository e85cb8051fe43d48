#include "profile/profile.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "blend/precompute.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend {
namespace {

using test::SplitMix;
using test::TempDir;

Profile example(uint32_t rank) {
  SplitMix rng(11);
  Profile p;
  for (uint8_t& b : p.fingerprint) b = static_cast<uint8_t>(rng.next());
  p.n_layers = 5;
  p.kv_dim = 4;
  p.kv_dtype = DType::bf16;
  p.prefixes = {{}, {1}, {1, 300, 7}};
  for (uint32_t i = 0; i < 6; ++i) {
    p.table.push_back({i % 3, 1 + i % 3, i % 2 == 1, 0.05 * i, 0.01 * i, 0.02 * i, 0.9, 100 + i});
    Measurement& m = p.table.back();
    m.policy = i < 3 ? BLEND_POLICY_HKVD : BLEND_POLICY_CASCADE;
    m.check_layer = 1 + i % 2;
    m.kl_margin = 0.001 * i;
    m.top1_margin = 0.01 * i;
    m.flops = 0.1 * i;
  }
  p.prefix = 2;
  p.policy = BLEND_POLICY_CASCADE;
  p.metric = BLEND_METRIC_K;
  p.check_layer = 2;
  p.corrected = p.trusted = true;
  p.ratio = 0.05;
  p.max_kl = 0.02;
  p.min_top1 = 0.95;
  p.n_fitted = 33;
  p.n_measured = 34;
  DriftMaps& d = p.drift;
  d.inputs = {true, true};
  d.kv_dim = p.kv_dim;
  d.first_layer = 3;
  d.n_maps = 2;
  d.rank = rank;
  d.explained_k = {0.5f, 0.25f};
  d.explained_v = {0.125f, 0.75f};
  d.data.resize(d.n_maps * d.layer_bytes());
  for (std::byte& b : d.data) b = static_cast<std::byte>(rng.next());
  d.ridge = 0.25;
  DriftMaps& s = p.stored_drift;
  s.inputs = DriftInputs::of_stored();
  s.kv_dim = p.kv_dim;
  s.first_layer = 1;
  s.n_maps = 4;
  s.rank = 2;
  s.ridge = 4;
  s.explained_k = s.explained_v = {0.1f, 0.2f, 0.3f, 0.4f};
  s.data.resize(s.n_maps * s.layer_bytes());
  for (std::byte& b : s.data) b = static_cast<std::byte>(rng.next());
  p.layer_steps = {{1.5f, 0.0625f, 1.5f, 2, 1.75f}, 0.02, 0.001, 0.004, 3.5, 3.25, 32};
  p.n_contexts = 4;
  p.codec_costs = {{BLEND_CODEC_INT8, 1e-4, 1e-5, 0.01, 8.25, 16},
                   {BLEND_CODEC_RANS, 0.02, 0.003, 0.01, 3.5, 15}};
  return p;
}

std::span<const std::byte> view(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

// Puts the checksum right again, as an enemy would.
void seal(std::string& bytes) {
  const uint64_t sum = checksum64(bytes.data(), bytes.size() - 8);
  std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
}

TEST(ProfileFile, RoundTripKeepsEverything) {
  const TempDir dir;
  for (const uint32_t rank : {0u, 3u}) {
    const Profile p = example(rank);
    ASSERT_TRUE(write_profile(p, dir.file("p.profile")).is_ok());
    Result<Profile> q = read_profile(dir.file("p.profile"));
    ASSERT_TRUE(q.is_ok()) << q.status().message();
    EXPECT_EQ(q->fingerprint, p.fingerprint);
    EXPECT_EQ(q->n_layers, p.n_layers);
    EXPECT_EQ(q->kv_dim, p.kv_dim);
    EXPECT_EQ(q->kv_dtype, p.kv_dtype);
    EXPECT_EQ(q->prefixes, p.prefixes);
    EXPECT_EQ(q->chunk_prefix(), p.chunk_prefix());
    EXPECT_EQ(q->metric, p.metric);
    EXPECT_EQ(q->check_layer, p.check_layer);
    EXPECT_EQ(q->corrected, p.corrected);
    EXPECT_EQ(q->trusted, p.trusted);
    EXPECT_EQ(q->ratio, p.ratio);
    EXPECT_EQ(q->max_kl, p.max_kl);
    EXPECT_EQ(q->min_top1, p.min_top1);
    EXPECT_EQ(q->n_fitted, p.n_fitted);
    EXPECT_EQ(q->n_measured, p.n_measured);
    ASSERT_EQ(q->table.size(), p.table.size());
    for (size_t i = 0; i < p.table.size(); ++i) {
      EXPECT_EQ(q->table[i].prefix, p.table[i].prefix);
      EXPECT_EQ(q->table[i].metric, p.table[i].metric);
      EXPECT_EQ(q->table[i].corrected, p.table[i].corrected);
      EXPECT_EQ(q->table[i].ratio, p.table[i].ratio);
      EXPECT_EQ(q->table[i].kl_mean, p.table[i].kl_mean);
      EXPECT_EQ(q->table[i].kl_p95, p.table[i].kl_p95);
      EXPECT_EQ(q->table[i].top1, p.table[i].top1);
      EXPECT_EQ(q->table[i].n_positions, p.table[i].n_positions);
      EXPECT_EQ(kind_of(q->table[i]), kind_of(p.table[i]));
      EXPECT_EQ(q->table[i].kl_margin, p.table[i].kl_margin);
      EXPECT_EQ(q->table[i].top1_margin, p.table[i].top1_margin);
      EXPECT_EQ(q->table[i].flops, p.table[i].flops);
    }
    EXPECT_EQ(q->kind(), p.kind());
    EXPECT_EQ(q->drift.ridge, p.drift.ridge);
    EXPECT_EQ(q->stored_drift.inputs, p.stored_drift.inputs);
    EXPECT_EQ(q->stored_drift.first_layer, 1u);
    EXPECT_EQ(q->stored_drift.rank, p.stored_drift.rank);
    EXPECT_EQ(q->stored_drift.data, p.stored_drift.data);
    EXPECT_EQ(q->drift.inputs, p.drift.inputs);
    EXPECT_EQ(q->drift.rank, p.drift.rank);
    EXPECT_EQ(q->drift.dtype, p.drift.dtype);
    EXPECT_EQ(q->drift.first_layer, p.drift.first_layer);
    EXPECT_EQ(q->drift.n_maps, p.drift.n_maps);
    EXPECT_EQ(q->drift.explained_k, p.drift.explained_k);
    EXPECT_EQ(q->drift.explained_v, p.drift.explained_v);
    EXPECT_EQ(q->drift.data, p.drift.data);
    EXPECT_EQ(q->layer_steps.factors, p.layer_steps.factors);
    EXPECT_EQ(q->layer_steps.kl_alike, p.layer_steps.kl_alike);
    EXPECT_EQ(q->layer_steps.kl_split, p.layer_steps.kl_split);
    EXPECT_EQ(q->layer_steps.gain_margin, p.layer_steps.gain_margin);
    EXPECT_EQ(q->layer_steps.bits_alike, p.layer_steps.bits_alike);
    EXPECT_EQ(q->layer_steps.bits_split, p.layer_steps.bits_split);
    EXPECT_EQ(q->layer_steps.n_prompts, p.layer_steps.n_prompts);
    EXPECT_EQ(q->n_contexts, p.n_contexts);
    ASSERT_EQ(q->codec_costs.size(), p.codec_costs.size());
    for (size_t i = 0; i < p.codec_costs.size(); ++i) {
      EXPECT_EQ(q->codec_costs[i].codec, p.codec_costs[i].codec);
      EXPECT_EQ(q->codec_costs[i].kl, p.codec_costs[i].kl);
      EXPECT_EQ(q->codec_costs[i].kl_margin, p.codec_costs[i].kl_margin);
      EXPECT_EQ(q->codec_costs[i].kl_fuse, p.codec_costs[i].kl_fuse);
      EXPECT_EQ(q->codec_costs[i].bits, p.codec_costs[i].bits);
      EXPECT_EQ(q->codec_costs[i].n_prompts, p.codec_costs[i].n_prompts);
    }
  }
}

TEST(ProfileFile, WithoutMaps) {
  Profile p = example(0);
  p.drift = p.stored_drift = {};
  p.corrected = false;
  Result<Profile> q = decode_profile(view(encode_profile(p)));
  ASSERT_TRUE(q.is_ok()) << q.status().message();
  EXPECT_TRUE(q->drift.empty());
}

TEST(ProfileFile, EveryFlippedByteIsFound) {
  const std::string sound = encode_profile(example(3));
  for (size_t i = 0; i < sound.size(); ++i) {
    std::string bad = sound;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    const Status status = decode_profile(view(bad)).status();
    const bool named = status.code() == BLEND_E_FORMAT || status.code() == BLEND_E_MISMATCH ||
                       status.code() == BLEND_E_CORRUPT;
    ASSERT_TRUE(named) << "byte " << i << ": " << status.code();
    ASSERT_FALSE(status.message().empty());
  }
}

TEST(ProfileFile, EveryTruncationIsFormat) {
  const std::string sound = encode_profile(example(3));
  for (size_t n = 0; n < sound.size(); ++n) {
    ASSERT_EQ(decode_profile(view(sound.substr(0, n))).status().code(), BLEND_E_FORMAT) << n;
  }
  EXPECT_EQ(decode_profile(view(sound + "x")).status().code(), BLEND_E_FORMAT);
}

// With the checksum made right, every four bytes in turn are set to values that hurt: the reader
// must refuse or give a profile whose parts agree, and never read past the end (ASan looks on).
TEST(ProfileFile, HostileFieldsAreRefusedOrHarmless) {
  size_t refused = 0;
  for (const uint32_t rank : {0u, 3u}) {
    const std::string sound = encode_profile(example(rank));
    for (size_t at = 8; at + 12 <= sound.size(); ++at) {
      for (const uint32_t value : {0u, 1u, 2u, 0x7fffffffu, 0xffffffffu, 0x01000000u}) {
        std::string bad = sound;
        std::memcpy(bad.data() + at, &value, 4);
        seal(bad);
        Result<Profile> p = decode_profile(view(bad));
        if (!p.is_ok()) {
          ++refused;
          continue;
        }
        ASSERT_LT(p->prefix, p->prefixes.size());
        ASSERT_LT(p->check_layer, p->n_layers);
        ASSERT_TRUE(p->ratio >= 0 && p->ratio <= 1);
        for (const Measurement& m : p->table) {
          ASSERT_LT(m.prefix, p->prefixes.size());
          ASSERT_TRUE(m.kl_mean >= 0);
        }
        ASSERT_TRUE(p->layer_steps.empty() || p->layer_steps.factors.size() == p->n_layers);
        for (const float f : p->layer_steps.factors) ASSERT_TRUE(f >= 1.0f / 64 && f <= 64) << f;
        ASSERT_TRUE(p->layer_steps.kl_alike >= 0 && p->layer_steps.bits_split >= 0);
        if (p->drift.empty()) continue;
        ASSERT_EQ(p->drift.data.size(), p->drift.n_maps * p->drift.layer_bytes());
        ASSERT_EQ(p->drift.explained_k.size(), p->drift.n_maps);
        ASSERT_EQ(p->drift.first_layer + p->drift.n_maps, p->n_layers);
      }
    }
  }
  EXPECT_GT(refused, 500u);
}

// As the first version had it: no policy, no maps of stored rows.
TEST(ProfileFile, Version1IsRead) {
  Profile p = example(0);
  p.prefixes = {{}};
  p.prefix = 0;
  p.table.clear();
  p.drift = p.stored_drift = {};
  p.layer_steps = {};
  p.codec_costs = {};
  p.n_contexts = 0;
  p.corrected = false;
  p.policy = BLEND_POLICY_CASCADE;
  std::string bytes = encode_profile(p);
  constexpr size_t kPolicyAt = 24 + 32 + 4 * 4 + 4 + 3 * 4;
  bytes.erase(bytes.size() - 12, 4);
  bytes.erase(kPolicyAt, 4);
  bytes[8] = 1;
  const uint64_t length = bytes.size();
  std::memcpy(bytes.data() + 16, &length, sizeof length);
  seal(bytes);
  const Result<Profile> q = decode_profile(view(bytes));
  ASSERT_TRUE(q.is_ok()) << q.status().message();
  EXPECT_EQ(q.value().policy, BLEND_POLICY_HKVD);
  EXPECT_EQ(q.value().check_layer, p.check_layer);
  EXPECT_EQ(q.value().ratio, p.ratio);
  EXPECT_EQ(q.value().n_measured, p.n_measured);
}

// A profile of the library before version 3 is read, and written again byte for byte.
TEST(ProfileFile, Version2IsReadAndWrittenWhereNothingNeedsMore) {
  constexpr std::string_view kHex =
      "424c454e4450524602000000000000002601000000000000000306090c0f1215181b1e2124272a2d303336393c"
      "3f4245484b4e5154575a5d03000000020000000100000002000000000000000100000001000000010000000500"
      "0000010000000c00000003000000000000000000d03f7b14ae47e17a943f666666666666ee3f21000000000000"
      "00220000000000000001000000010000000500000001000000000000000000d03f7b14ae47e17a843f7b14ae47"
      "e17a943f000000000000ef3f64000000000000000c00000001000000fca9f1d24d62503f000000000000803f00"
      "0000000000e03f01000000020000000100000001000000000000000000e03f0000003f0000803e000102030405"
      "060708090a0b0c0d0e0f1011000000004e3f3704e3591f69";
  std::string bytes;
  for (size_t i = 0; i < kHex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(kHex.substr(i, 2)), nullptr, 16));
  }
  Result<Profile> p = decode_profile(view(bytes));
  ASSERT_TRUE(p.is_ok()) << p.status().message();
  EXPECT_EQ(p->n_layers, 3u);
  EXPECT_EQ(p->chunk_prefix(), std::vector<int32_t>{1});
  EXPECT_EQ(p->table.at(0).flops, 0.5);
  EXPECT_EQ(p->drift.explained_v.at(0), 0.25f);
  EXPECT_TRUE(p->stored_drift.empty());
  EXPECT_TRUE(p->layer_steps.empty());
  EXPECT_TRUE(encode_profile(*p) == bytes);
  p->layer_steps.factors = {2, 0.5f, 1};
  EXPECT_EQ(encode_profile(*p)[8], 3);
  p->codec_costs = {{BLEND_CODEC_INT4, 0.01, 0, 0.02, 5, 8}};
  EXPECT_EQ(encode_profile(*p)[8], 4);
}

// A version 4 without steps is sound too.
TEST(ProfileFile, CodecsThatCostNoNumberOrTooManyAreRefused) {
  Profile p = example(0);
  p.layer_steps = {};
  const std::string sound = encode_profile(p);
  const size_t costs_at = sound.size() - 8 - 2 * 44;
  const auto with = [&](size_t at, const auto& value) {
    std::string bytes = sound;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    seal(bytes);
    return decode_profile(view(bytes)).status();
  };
  EXPECT_TRUE(with(costs_at + 4, 0.5).is_ok());
  for (const double bad : {-1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    for (size_t i = 0; i < 4; ++i) {
      const Status said = with(costs_at + 4 + 8 * i, bad);
      EXPECT_EQ(said.code(), BLEND_E_FORMAT) << bad;
      EXPECT_NE(said.message().find("cost of a codec"), std::string::npos) << said.message();
    }
  }
  for (const uint32_t n : {0u, 1u, 3u, 0xffffffffu}) {
    EXPECT_EQ(with(costs_at - 4, n).code(), BLEND_E_FORMAT) << n;
  }
  EXPECT_TRUE(with(costs_at - 8, BLEND_MOST_CONTEXTS).is_ok());
  EXPECT_EQ(with(costs_at - 8, BLEND_MOST_CONTEXTS + 1).code(), BLEND_E_FORMAT);
}

// A version 3 without steps is sound: another writer may have it.
TEST(ProfileFile, LayerStepsOfAnotherNumberOrSizeAreRefused) {
  Profile p = example(0);
  p.codec_costs = {};
  p.n_contexts = 0;
  const std::string sound = encode_profile(p);
  const size_t steps_at = sound.size() - 8 - 6 * 8 - 5 * 4;
  const auto with = [&](size_t at, uint32_t value) {
    std::string bytes = sound;
    std::memcpy(bytes.data() + at, &value, 4);
    seal(bytes);
    return decode_profile(view(bytes)).status();
  };
  const auto bits = [](float f) { return std::bit_cast<uint32_t>(f); };
  ASSERT_TRUE(with(steps_at, bits(64)).is_ok());
  ASSERT_TRUE(with(steps_at, bits(1.0f / 64)).is_ok());
  for (const float bad : {0.0f, -1.0f, 65.0f, 0.015f, std::nanf(""), INFINITY}) {
    const Status said = with(steps_at, bits(bad));
    EXPECT_EQ(said.code(), BLEND_E_FORMAT) << bad;
    EXPECT_NE(said.message().find("step of a layer"), std::string::npos) << said.message();
  }
  for (const uint32_t n : {1u, 4u, 6u, 0xffffffffu}) {
    EXPECT_EQ(with(steps_at - 4, n).code(), BLEND_E_FORMAT) << n;
  }
  std::string none = sound;
  none.erase(steps_at, 5 * 4);
  const uint32_t zero = 0;
  std::memcpy(none.data() + steps_at - 4, &zero, 4);
  const uint64_t length = none.size();
  std::memcpy(none.data() + 16, &length, sizeof length);
  seal(none);
  const Result<Profile> q = decode_profile(view(none));
  ASSERT_TRUE(q.is_ok()) << q.status().message();
  EXPECT_TRUE(q.value().layer_steps.empty());
}

TEST(ProfileFile, OtherVersionOtherFileAndNoFile) {
  const TempDir dir;
  std::string bytes = encode_profile(example(0));
  bytes[8] = 5;
  seal(bytes);
  EXPECT_EQ(decode_profile(view(bytes)).status().code(), BLEND_E_MISMATCH);
  EXPECT_EQ(read_profile(dir.file("none")).status().code(), BLEND_E_NOT_FOUND);
  std::ofstream(dir.file("text")) << "not a profile at all, but long enough to be one";
  const Status status = read_profile(dir.file("text")).status();
  EXPECT_EQ(status.code(), BLEND_E_FORMAT);
  EXPECT_NE(status.message().find("text"), std::string::npos) << "the file is named";
}

TEST(ProfileFile, WriteReplacesAndLeavesNothingElse) {
  const TempDir dir;
  Profile p = example(0);
  ASSERT_TRUE(write_profile(p, dir.file("p")).is_ok());
  p.ratio = 0.5;
  ASSERT_TRUE(write_profile(p, dir.file("p")).is_ok());
  EXPECT_EQ(read_profile(dir.file("p"))->ratio, 0.5);
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    (void)entry;
    ++n;
  }
  EXPECT_EQ(n, 1u);
  EXPECT_EQ(write_profile(p, dir.file("no/such/directory")).code(), BLEND_E_IO);
  EXPECT_EQ(read_profile(dir.file("p"))->ratio, 0.5);
}

TEST(LeastTrustedRatio, IsWhereEveryGreaterOnePasses) {
  const auto line = [](double ratio, double kl, double top1, bool corrected = false) {
    Measurement m;
    m.metric = BLEND_METRIC_V;
    m.corrected = corrected;
    m.ratio = ratio;
    m.kl_mean = kl;
    m.top1 = top1;
    return m;
  };
  const auto least = [](const std::vector<Measurement>& table, bool corrected = false) {
    const FusingKind kind = {0, BLEND_POLICY_HKVD, BLEND_METRIC_V, 1, corrected};
    return least_trusted_ratio(table, kind, 0.02, 0.95);
  };
  EXPECT_EQ(least({line(0, .5, 1), line(.1, .03, 1), line(.2, .01, 1), line(.3, .001, 1)}), 0.2);
  EXPECT_EQ(least({line(0, .001, 1), line(.3, .001, 1)}), 0);
  EXPECT_EQ(least({line(.3, .001, .9)}), -1) << "top-1 counts too";
  EXPECT_EQ(least({}), -1);
  EXPECT_EQ(least({line(.1, .02, .95)}), 0.1) << "the limits themselves pass";
  EXPECT_EQ(least({line(.1, .01, 1), line(.2, .03, 1), line(.3, .01, 1)}), 0.3)
      << "0.1 passed by luck";
  EXPECT_EQ(least({line(.1, .01, 1, true), line(.3, .01, 1)}), 0.3);
  EXPECT_EQ(least({line(.1, .01, 1, true), line(.3, .01, 1)}, true), 0.1);
  // The margins count.
  Measurement narrow = line(.1, .015, .97);
  narrow.kl_margin = .004;
  narrow.top1_margin = .01;
  EXPECT_EQ(least({narrow}), 0.1);
  narrow.kl_margin = .006;
  EXPECT_EQ(least({narrow}), -1);
  narrow.kl_margin = .004;
  narrow.top1_margin = .03;
  EXPECT_EQ(least({narrow}), -1);
  // Another policy's or check layer's lines are no answer.
  Measurement other = line(.1, .01, 1);
  other.policy = BLEND_POLICY_CASCADE;
  EXPECT_EQ(least({other}), -1);
  other = line(.1, .01, 1);
  other.check_layer = 2;
  EXPECT_EQ(least({other}), -1);
}

TEST(LeastRatio, IsOneWhereNothingIsTrustedAndNothingWhereNothingWasMeasured) {
  Profile p = example(0);
  p.table.clear();
  const auto add = [&](uint32_t prefix, bool corrected, double ratio, double kl) {
    p.table.push_back({prefix, BLEND_METRIC_V, corrected, ratio, kl, kl, 1.0, 10});
    p.table.back().check_layer = 2;
  };
  add(0, true, 0.05, 0.01);
  add(0, false, 0.05, 0.03);
  add(0, false, 0.15, 0.01);
  add(2, false, 0.15, 0.5);
  EXPECT_EQ(prefix_index(p, {}), 0u);
  EXPECT_EQ(prefix_index(p, p.prefixes[2]), 2u);
  EXPECT_FALSE(prefix_index(p, std::vector<int32_t>{2}).has_value());
  const auto kind = [](uint32_t prefix, bool corrected, uint32_t layer = 2,
                       uint32_t metric = BLEND_METRIC_V) {
    return FusingKind{prefix, BLEND_POLICY_HKVD, metric, layer, corrected};
  };
  EXPECT_EQ(least_ratio(p, kind(0, true)), 0.05);
  EXPECT_EQ(least_ratio(p, kind(0, false)), 0.15);
  EXPECT_EQ(least_ratio(p, kind(2, false)), 1.0);
  EXPECT_FALSE(least_ratio(p, kind(2, true)).has_value());
  EXPECT_FALSE(least_ratio(p, kind(1, false)).has_value());
  EXPECT_FALSE(least_ratio(p, kind(0, false, 1)).has_value()) << "another check layer";
  EXPECT_FALSE(least_ratio(p, kind(0, false, 2, BLEND_METRIC_K)).has_value());
  FusingKind cascade = kind(0, true);
  cascade.policy = BLEND_POLICY_CASCADE;
  EXPECT_FALSE(least_ratio(p, cascade).has_value()) << "another policy";
  EXPECT_TRUE(vouches(p, kind(0, true), 0.05));
  EXPECT_FALSE(vouches(p, kind(0, false), 0.05));
  EXPECT_FALSE(vouches(p, kind(2, false), 1.0));
}

}  // namespace
}  // namespace blend
