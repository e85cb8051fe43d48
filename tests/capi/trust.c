/* A fuse that its profile does not trust. */
#include <stddef.h>

#include "fixture.h"

/* A profile whose limits nothing keeps, so that it vouches for nothing. */
static blend_profile* strict_profile(const fixture* f, const world* w, const blend_segment* prompt,
                                     size_t n) {
  static const double kRatio = 0.1;
  static const uint32_t kPolicy = BLEND_POLICY_HKVD;
  blend_calibrate_options o;
  blend_sample sample = {.struct_size = sizeof sample};
  blend_profile* profile = NULL;
  const char* path = path_in(f, "strict.profile");
  CHECK(blend_calibrate_options_init(&o, sizeof o) == BLEND_OK);
  o.ratios = &kRatio;
  o.n_ratios = 1;
  o.policies = &kPolicy;
  o.n_policies = 1;
  o.correction = BLEND_CORRECTION_OFF;
  o.score_tokens = 1;
  o.max_kl = 0;
  sample.segments = prompt;
  sample.n_segments = n;
  CHECK_CODE(BLEND_BELOW_LIMITS, blend_calibrate(w->model, &sample, 1, &o, path, &err));
  CHECK_OK(blend_profile_open(&profile, w->model, path, &err));
  return profile;
}

void trust_beside_the_model(const fixture* f) {
  world w;
  int32_t tokens[2][20];
  blend_segment s[2];
  blend_sample sample = {.struct_size = sizeof sample};
  blend_calibrate_options o;
  blend_profile *named = NULL, *found = NULL;
  blend_profile_info a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
  static const double kRatio = 0.25;
  int i;
  REQUIRE(open_world(f, &w));
  for (i = 0; i < 2; ++i) {
    fill_tokens(tokens[i], 20, 3 + 40 * i);
    s[i] = segment(i < 1 ? BLEND_SEGMENT_CHUNK : BLEND_SEGMENT_QUESTION, tokens[i], 20);
  }
  sample.segments = s;
  sample.n_segments = 2;
  CHECK(blend_calibrate_options_init(&o, sizeof o) == BLEND_OK);
  o.ratios = &kRatio;
  o.n_ratios = 1;
  o.correction = BLEND_CORRECTION_OFF;
  o.score_tokens = 1;
  o.max_kl = 100;
  o.min_top1 = 0;
  CHECK_SAYS(BLEND_E_NOT_FOUND, "model.gguf.profile",
             blend_profile_open(&found, w.model, NULL, &err));
  CHECK_OK(blend_calibrate(w.model, &sample, 1, &o, NULL, &err));
  CHECK_OK(blend_profile_open(&found, w.model, NULL, &err));
  CHECK_OK(blend_profile_open(&named, w.model, path_in(f, "model.gguf.profile"), &err));
  REQUIRE(found != NULL && named != NULL);
  CHECK_OK(blend_profile_get_info(found, &a, &err));
  CHECK_OK(blend_profile_get_info(named, &b, &err));
  CHECK(a.ratio == 0.25 && b.ratio == 0.25);
  blend_profile_close(found);
  blend_profile_close(named);
  close_world(&w);
}

static blend_fusion_report info_of(const blend_fusion* fusion) {
  blend_fusion_report info = {.struct_size = sizeof info};
  if (fusion != NULL) CHECK_OK(blend_fusion_get_report(fusion, &info, &err));
  return info;
}

void trust_on_untrusted(const fixture* f) {
  world w;
  int32_t tokens[3][20];
  blend_segment s[3];
  blend_fusion *fusion = NULL, *full = NULL;
  blend_layerwise* layerwise = NULL;
  blend_profile* profile;
  blend_fuse_options o = fuse_options();
  blend_selection_options detail = {.struct_size = sizeof detail};
  const uint32_t* rows = NULL;
  size_t n = 0;
  int i;
  REQUIRE(open_world(f, &w));
  CHECK(o.on_untrusted == BLEND_ON_UNTRUSTED_FUSE);
  for (i = 0; i < 3; ++i) {
    fill_tokens(tokens[i], 20, 3 + 40 * i);
    s[i] = segment(i < 2 ? BLEND_SEGMENT_CHUNK : BLEND_SEGMENT_QUESTION, tokens[i], 20);
  }
  profile = strict_profile(f, &w, s, 3);
  REQUIRE(profile != NULL);
  CHECK_OK(blend_profile_apply(profile, &o, &err));
  o.ratio = 0.1;
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  CHECK((info_of(fusion).flags & ~BLEND_FUSION_CHECKED) == BLEND_FUSION_UNTRUSTED);
  CHECK(info_of(fusion).policy == BLEND_POLICY_HKVD);
  blend_fusion_close(fusion);
  fusion = NULL;

  o.on_untrusted = BLEND_ON_UNTRUSTED_FAIL;
  CHECK_SAYS(BLEND_E_UNTRUSTED, "limits", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  CHECK_SAYS(BLEND_E_UNTRUSTED, "limits",
             blend_layerwise_create(&layerwise, w.model, w.store, s, 3, &o, &err));
  CHECK(fusion == NULL && layerwise == NULL);
  detail.check_layer = 2;
  o.selection = &detail;
  CHECK_SAYS(BLEND_E_UNTRUSTED, "measure", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  o.selection = NULL;

  o.on_untrusted = BLEND_ON_UNTRUSTED_FULL;
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  CHECK(info_of(fusion).flags == 0);
  CHECK(info_of(fusion).policy == BLEND_POLICY_FULL);
  CHECK_OK(blend_layerwise_create(&layerwise, w.model, w.store, s, 3, &o, &err));
  CHECK_OK(blend_layerwise_get_rows(layerwise, &rows, &n, &err));
  CHECK(n == 60);
  o = fuse_options();
  o.policy = BLEND_POLICY_FULL;
  CHECK_OK(blend_fuse(&full, w.model, w.store, s, 3, &o, &err));
  CHECK(same_logits(fusion, full));

  /* Nobody doubts without a profile, and an invalid choice stays one without it. */
  o = fuse_options();
  o.on_untrusted = BLEND_ON_UNTRUSTED_FAIL;
  blend_fusion_close(fusion);
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  CHECK((info_of(fusion).flags & ~BLEND_FUSION_CHECKED) == BLEND_FUSION_UNCALIBRATED);
  blend_fusion_close(fusion);
  fusion = NULL;
  o.on_untrusted = BLEND_ON_UNTRUSTED_FAIL + 1;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "on_untrusted",
             blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  CHECK(fusion == NULL);

  blend_fusion_close(full);
  blend_layerwise_close(layerwise);
  blend_profile_close(profile);
  close_world(&w);
}
