"""Modules of XLA as text."""

from __future__ import annotations

LAYER = """HloModule layer.9, entry_computation_layout={(f32[2,3]{1,0}, f32[3,4]{0,1})->f32[2,4]{1,0}}

%inner (p.1: f32[2,4], p.2: f32[2,4]) -> f32[2,4] {
  %p.1 = f32[2,4]{1,0} parameter(0)
  %p.2 = f32[2,4]{1,0} parameter(1)
  ROOT %maximum.1 = f32[2,4]{1,0} maximum(f32[2,4]{1,0} %p.1, f32[2,4]{1,0} %p.2)
}

ENTRY %layer.9 (x: f32[2,3], w: f32[3,4]) -> f32[2,4] {
  %x = f32[2,3]{1,0} parameter(0), metadata={op_name="XLA_Args" source_file="a } b"}
  %w = f32[3,4]{0,1} parameter(1)
  %dot.1 = f32[2,4]{1,0} dot(f32[2,3]{1,0} %x, f32[3,4]{0,1} %w), lhs_contracting_dims={1},
    rhs_contracting_dims={0}, sharding={maximal device=2},
    frontend_attributes={PARTIALS_TYPE="half",_ipu_pipeline_stage="1"}
  %zero = f32[] constant(0)
  %zeros = f32[2,4]{1,0} broadcast(f32[] %zero), dimensions={}
  ROOT %out = f32[2,4]{1,0} fusion(f32[2,4]{1,0} %dot.1, /*index=1*/f32[2,4]{1,0} %zeros), kind=kLoop, calls=%inner
}
"""
SHORT = """HloModule short
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
cond { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 v = f32[4] get-tuple-element(s), index=1
  w = f32[4] add(v, v) ROOT t = (s32[], f32[4]) tuple(i, w) }
ENTRY main {
  x = f32[4,3]{0,1} parameter(0)
  z = f32[] constant(0)
  r = f32[4] reduce(x, z), dimensions={1}, to_apply=add
  k = s32[] constant(0)
  s = (s32[], f32[4]) tuple(k, r)
  t = (s32[], f32[4]) while(s), condition=cond, body=body
  m = f32[2,2] constant({ {1, 2.5}, {-inf, 1e-3} })
  e = f32[1000,1000] constant({...})
  q = f32[4,3]{0,1} negate(x)
  ROOT o = (f32[4], f32[2,2], f32[1000,1000], f32[4,3]) tuple(r, m, e, q)
}
"""
