#include "eval_html_style.h"

namespace blend_cli {

// Series colours: told apart by readers with any common colour vision (after Okabe & Ito, 2008),
// brighter on dark. s: line, m: marker, b: confidence bar, d1 .. d3: dashes; g: grid, a: axis,
// r: reference; t, l, h: tick, label, heading; e, m: end, middle anchored.
const char* const kEvalStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1e21;--soft:#5b6169;--line:#dcdfe4;--card:#f6f7f9;
--good:#0a7d4f;--bad:#b3261e;--heat:#d1480a;--cold:#eceef1;--full:#0b5cad;--kv:#8dbbe8;--stored:#e3e6ea;
--pick:#0b5cad;
--c0:#0b62b0;--c1:#cc4e0b;--c2:#00855c;--c3:#b0457f;--c4:#7a5bb5;--c5:#8a6a00;--c6:#007c91;--c7:#555b63}
@media (prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e6e8eb;--soft:#a0a7b0;--line:#353a41;
--card:#1d2024;--good:#4cc38a;--bad:#ff8a7a;--heat:#ff8c42;--cold:#2a2e34;--full:#5aa9f5;--kv:#2d5c8c;
--stored:#2a2e34;--pick:#8cc5ff;
--c0:#5aa9f5;--c1:#ff9457;--c2:#3ecf9c;--c3:#f08cc2;--c4:#b79cf2;--c5:#e0b93f;--c6:#45c8dc;--c7:#b0b7c0}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:28px 36px 60px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:40px 0 6px}h3{font-size:15px;margin:26px 0 6px}
p{margin:6px 0;max-width:84ch}.soft{color:var(--soft)}code{font:13px/1.5 ui-monospace,"DejaVu Sans Mono",monospace;
overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;margin:20px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.tile b{display:block;font-size:24px;line-height:1.25}.tile span{color:var(--soft);font-size:13px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:5px 8px;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
th{color:var(--soft);font-weight:600;vertical-align:bottom;line-height:1.25}
th.w,td.w{text-align:left}td.nb{white-space:nowrap}
.answers td{text-align:left;overflow-wrap:anywhere}.answers th{text-align:left}
.ok{color:var(--good)}.no{color:var(--bad)}
.legend{display:flex;flex-wrap:wrap;gap:4px 20px;margin:10px 0;font-size:13px}
.legend span{display:inline-flex;align-items:center;gap:7px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:16px}
.charts>div,.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px}
svg{display:block}svg.chart,svg.rows{width:100%;height:auto}
svg text{fill:var(--fg);font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
svg .t{fill:var(--soft)}svg .l{fill:var(--soft);font-size:12.5px}svg .h{font-size:14px;font-weight:600}
svg .e{text-anchor:end}svg text.o{paint-order:stroke;stroke:var(--card);stroke-width:4px}svg text.m{text-anchor:middle}
svg .g{stroke:var(--line);stroke-width:1}svg .a{stroke:var(--soft);stroke-width:1}
svg .r{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:2 4}
svg .s{fill:none;stroke-width:2}svg .b{stroke-width:1.3;opacity:.75}
svg .d1{stroke-dasharray:7 4}svg .d2{stroke-dasharray:2 3}svg .d3{stroke-dasharray:9 3 2 3}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}
.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{stroke:var(--c6)}.c7{stroke:var(--c7)}
.m.c0{fill:var(--c0)}.m.c1{fill:var(--c1)}.m.c2{fill:var(--c2)}.m.c3{fill:var(--c3)}
.m.c4{fill:var(--c4)}.m.c5{fill:var(--c5)}.m.c6{fill:var(--c6)}.m.c7{fill:var(--c7)}
svg circle.m,svg rect.m{stroke:var(--card);stroke-width:1}
svg .cold{fill:var(--cold)}svg .hot{fill:var(--heat)}svg .pick{fill:var(--pick)}
svg .stored{fill:var(--stored)}svg .kv{fill:var(--kv)}svg .full{fill:var(--full)}
svg.rows rect{shape-rendering:crispEdges}svg .edge{stroke:var(--fg);stroke-width:1;opacity:.45}
.swatch{width:14px;height:14px;border-radius:3px;display:inline-block}
.ramp{width:90px;background:linear-gradient(90deg,var(--cold),var(--heat))}
.seg{display:flex;gap:14px;margin:0 0 8px}
.seg .name{flex:0 0 128px;font-size:12px;line-height:1.35;color:var(--soft);text-align:right}
.seg .name b{display:block;color:var(--fg)}
.tokens{display:flex;flex-wrap:wrap;gap:5px 0}
.tok{display:inline-block;font:12px/1.35 ui-monospace,"DejaVu Sans Mono",monospace;padding:0 1px;
border:1px solid transparent;border-radius:3px;text-align:center;min-width:11px;margin-left:6px}
.tok.j{margin-left:0}.word{display:inline-flex;flex-wrap:wrap}p.wide{max-width:none}
.tok>i{display:block;height:12px;margin:0 -1px;background:var(--cold);border-radius:2px}
.tok>i>i{display:block;height:12px;background:var(--heat);border-radius:2px}
.tok.pick{border-color:var(--pick);color:var(--pick);font-weight:700}
.tok.plain{color:var(--soft)}.tok.plain>i{background:none}
details summary{cursor:pointer;color:var(--soft);font-size:12px}
details ol{margin:6px 0;padding-left:22px;color:var(--soft);font-size:12px;white-space:pre-line}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;font-size:13.5px;margin:10px 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
@media (max-width:720px){body{padding:18px 14px}.charts{grid-template-columns:1fr}.seg{display:block}
.seg .name{text-align:left}}
@media print{body{max-width:none}.charts>div,.card{break-inside:avoid}}
)css";

}  // namespace blend_cli
