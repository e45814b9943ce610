//! A printed program with every form of random kernels: `tests.rs` describes how it is written
//! anew.

use cutlet as ct;
use cutlet::prelude::*;

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_0(at: [Scalar<i32>; 2], input_f32: Array<f32, 2>, input_f16: Array<f16, 2>, input_bf16: Array<bf16, 2>, input_f64: Array<f64, 2>, input_tf32: Array<tf32, 2>, input_f8e4m3fn: Array<f8e4m3fn, 2>, input_f8e5m2: Array<f8e5m2, 2>, input_f8e8m0fnu: Array<f8e8m0fnu, 2>, input_i8: Array<i8, 2>, input_i16: Array<i16, 2>, input_i32: Array<i32, 2>, input_i64: Array<i64, 2>, input_u8: Array<u8, 2>, input_u16: Array<u16, 2>, input_u32: Array<u32, 2>, input_u64: Array<u64, 2>, input_bool: Array<bool, 2>) -> (Tile<bf16, 2>, Tile<f64, 2>, Tile<i8, 2>, Tile<i64, 2>, Tile<u8, 2>, Tile<u16, 2>, Tile<u32, 2>, Tile<u64, 2>, Tile<bool, 2>, Tile<u8, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<f32, 2>, Tile<f16, 2>, Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>, Tile<bool, 2>, Tile<bf16, 2>, Tile<i32, 2>, Tile<i16, 2>) {
    let v0 = input_f32.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v1 = input_f16.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v2 = input_bf16.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v3 = input_f64.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v4 = input_tf32.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v5 = input_f8e4m3fn.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v6 = input_f8e5m2.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v7 = input_f8e8m0fnu.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v8 = input_i8.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v9 = input_i16.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v10 = input_i32.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v11 = input_i64.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v12 = input_u8.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v13 = input_u16.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v14 = input_u32.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v15 = input_u64.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v16 = input_bool.load([at[0] + 0i32, at[1] + 0i32], [8usize, 32usize]);
    let v17 = v12.transpose();
    let v18 = v8.transpose();
    let v19 = ct::matmul(v17, v12);
    let v20 = ct::matmul(v18, v12);
    let v21 = ct::mma(v17, v8, v19);
    let v22 = ct::matmul(v18, v18.transpose());
    let v23 = { let ([rows, k], n, count) = (v18.shape(), v8.shape()[1], 1 << 1usize); let left = v18.reshape([count, rows / count, k]); ct::matmul(left, v8.reshape([if 1usize == 1 { 1 } else { count }, k, n])).reshape([32usize, 32usize]) };
    let v24 = { let row = v17.extract([0, 0], [1, v17.shape()[1]]).squeeze(0); ct::matvec(v17, row).unsqueeze(1) };
    let v25 = { let column = v18.extract([0, 0], [v18.shape()[0], 1]).squeeze(1); ct::vecmat(column, v18).unsqueeze(0) };
    let v26 = { let (a, b) = ((v8 & < i8 as Element >::from_f64(3.0)).cast::< f16 > (), (v17 & 3).cast::< f16 > ()); ct::mma(a, b, ct::zeros::< f32, 2 > ([v8.shape()[0], v17.shape()[1]])) };
    let v27 = { let (a, b) = ((v18 & < i8 as Element >::from_f64(3.0)).cast::< f16 > (), (v12 & 3).cast::< f16 > ()); ct::mma(a, b, ct::zeros::< f16, 2 > ([v18.shape()[0], v12.shape()[1]])) };
    let v28 = { let (a, b) = ((v8 & < i8 as Element >::from_f64(3.0)).cast::< bf16 > (), (v17 & 3).cast::< bf16 > ()); ct::mma(a, b, ct::zeros::< f32, 2 > ([v8.shape()[0], v17.shape()[1]])) };
    let v29 = { let (a, b) = ((v18 & < i8 as Element >::from_f64(3.0)).cast::< tf32 > (), (v12 & 3).cast::< tf32 > ()); ct::mma(a, b, ct::zeros::< f32, 2 > ([v18.shape()[0], v12.shape()[1]])) };
    let v30 = { let (a, b) = ((v12 & < u8 as Element >::from_f64(3.0)).cast::< f32 > (), (v17 & 3).cast::< f32 > ()); ct::mma(a, b, ct::zeros::< f32, 2 > ([v12.shape()[0], v17.shape()[1]])) };
    let v31 = { let (a, b) = ((v12 & < u8 as Element >::from_f64(3.0)).cast::< f64 > (), (v17 & 3).cast::< f64 > ()); ct::mma(a, b, ct::zeros::< f64, 2 > ([v12.shape()[0], v17.shape()[1]])) };
    let v32 = { let (a, b) = ((v8 & < i8 as Element >::from_f64(3.0)).cast::< f8e4m3fn > (), (v17 & 3).cast::< f8e4m3fn > ()); ct::mma(a, b, ct::zeros::< f32, 2 > ([v8.shape()[0], v17.shape()[1]])) };
    let v33 = { let (a, b) = ((v12 & < u8 as Element >::from_f64(3.0)).cast::< f8e5m2 > (), (v17 & 3).cast::< f8e5m2 > ()); ct::mma(a, b, ct::zeros::< f32, 2 > ([v12.shape()[0], v17.shape()[1]])) };
    let v34 = { let (a, b) = ((v8 & < i8 as Element >::from_f64(3.0)).cast::< f8e4m3fn > (), (v17 & 3).cast::< f8e4m3fn > ()); ct::mma(a, b, ct::zeros::< f16, 2 > ([v8.shape()[0], v17.shape()[1]])) };
    let v35 = { let (a, b) = ((v8 & <i8 as Element>::from_f64(3.0)).cast::<f8e4m3fn>(), (v17 & 3).cast::<f8e4m3fn>()); ct::mma_fast_acc(a, b, ct::zeros::<f32, 2>([v8.shape()[0], v17.shape()[1]])) };
    let v36 = { let [m, k] = v12.shape(); let (a, b) = ((v12 & 3).cast::<f8e4m3fn>(), (v12 & 3).cast::<f8e4m3fn>().transpose()); let scales = |shape: [usize; 2]| (ct::indices(shape, 0) % 2 + 1).cast::<f8e8m0fnu>(); ct::mma_scaled(a, scales([m, k / 32]), b, scales([k / 32, m]), ct::zeros::<f32, 2>([m, m])) };
    let v37 = v32 + v33;
    let v38 = v27 - v27;
    let v39 = v37 * v37;
    let v40 = v3 / v3;
    let v41 = v36 % v32;
    let v42 = v38.max(v27);
    let v43 = v40.min(v3);
    let v44 = v41.max_nan(v39);
    let v45 = v44.min_nan(v39);
    let v46 = v44.add_with (v41, Rounding::Zero);
    let v47 = v41.sub_with (v45, Rounding::NegInf);
    let v48 = v45.mul_with (v32, Rounding::PosInf);
    let v49 = v26.div_with (v48, Rounding::Zero);
    let v50 = -v35;
    let v51 = v39.abs();
    let v52 = v45.sqrt();
    let v53 = v50.floor();
    let v54 = v37.ceil();
    let v55 = v43.nextafter(v43);
    let v56 = v26.isnan();
    let v57 = v2.fma(v2, v2);
    let v58 = v22 + v23;
    let v59 = v9 - v9;
    (v2, v3, v8, v11, v12, v13, v14, v15, v16, v17, v19, v22, v24, v25, v26, v27, v28, v30, v32, v35, v45, v46, v47, v54, v56, v57, v58, v59)
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_1(v3: Tile<f64, 2>, v8: Tile<i8, 2>, v11: Tile<i64, 2>, v12: Tile<u8, 2>, v14: Tile<u32, 2>, v15: Tile<u64, 2>, v16: Tile<bool, 2>, v17: Tile<u8, 2>, v19: Tile<i32, 2>, v25: Tile<i32, 2>, v27: Tile<f16, 2>, v32: Tile<f32, 2>, v46: Tile<f32, 2>, v47: Tile<f32, 2>, v54: Tile<f32, 2>, v56: Tile<bool, 2>, v57: Tile<bf16, 2>, v58: Tile<i32, 2>, v59: Tile<i16, 2>) -> (Tile<i16, 2>, Tile<i64, 2>, Tile<i16, 2>, Tile<i16, 2>, Tile<i16, 2>, Tile<i32, 2>, Tile<i16, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<i16, 2>, Tile<bool, 2>, Tile<bool, 2>, Tile<bool, 2>, Tile<bool, 2>, Tile<i8, 2>, Tile<f8e5m2, 2>, Tile<u16, 2>, Tile<f64, 2>, Tile<i32, 2>, Tile<i16, 2>, Tile<bool, 2>, Tile<u8, 2>, Tile<u8, 2>) {
    let v60 = v59 * v59;
    let v61 = v11.max(v11);
    let v62 = v8.min(v8);
    let v63 = v61 << v11;
    let v64 = v60 >> v59;
    let v65 = v64.mul_hi(v60);
    let v66 = v65 / ((v64 & <i16 as Element>::from_f64(7.0)) | <i16 as Element>::from_f64(1.0));
    let v67 = v58 % ((v58 & <i32 as Element>::from_f64(7.0)) | <i32 as Element>::from_f64(1.0));
    let v68 = { let v67 = v67 & < i32 as Element >::from_bits((1 << (< i32 as Element >::DTYPE.bits() - 1)) - 1); { v67 / v67 } };
    let v69 = { let v64 = v64 & < i16 as Element >::from_bits((1 << (< i16 as Element >::DTYPE.bits() - 1)) - 1); { v66 % v64 } };
    let v70 = { let v65 = v65 & < i16 as Element >::from_bits((1 << (< i16 as Element >::DTYPE.bits() - 1)) - 1); { v69.trunc_div(v65) } };
    let v71 = { let v69 = v69 & < i16 as Element >::from_bits((1 << (< i16 as Element >::DTYPE.bits() - 1)) - 1); { v64.floor_div(v69) } };
    let v72 = { let v70 = v70 & < i16 as Element >::from_bits((1 << (< i16 as Element >::DTYPE.bits() - 1)) - 1); { v69.ceil_div(v70) } };
    let v73 = { let v66 = v66 & < i16 as Element >::from_bits((1 << (< i16 as Element >::DTYPE.bits() - 1)) - 1); { v60.modulo(v66) } };
    let v74 = v69 & v69;
    let v75 = v74 | v73;
    let v76 = v75 ^ v70;
    let v77 = !v65;
    let v78 = v69.reverse_bits();
    let v79 = v78.funnel_shl(v77, v77);
    let v80 = v25.funnel_shr(v25, v25);
    let v81 = v60.powi(6i32);
    let v82 = -v19;
    let v83 = v81.abs();
    let v84 = v82.clamp(<i32 as Element>::from_f64(6i32 as f64), <i32 as Element>::from_f64((6i32 + 74i32) as f64));
    let v85 = v77.map(|a| a * a + <i16 as Element>::from_f64(3.0));
    let v86 = v17.zip_map(v17, |a, b| a.max(b) - a);
    let v87 = unsafe { (v86 & <u8 as Element>::from_f64(15.0)).assume_bounds(0..=15) };
    let v88 = unsafe { (v70 * <i16 as Element>::from_f64(16.0)).assume_divisible_by(16) };
    let v89 = v82.eq (v58);
    let v90 = v85.ne (v75);
    let v91 = v57.lt (v57);
    let v92 = v46.le (v54);
    let v93 = v91.gt (v16);
    let v94 = v87.ge (v87);
    let v95 = ct::select(v56, v32, v54);
    let v96 = v54.cast::<f32>();
    let v97 = v84.cast_saturating::<i64>();
    let v98 = v87.bitcast::< i8 > ();
    let v99 = v12.bitcast::< f8e4m3fn > ();
    let v100 = v98.bitcast::< f8e5m2 > ();
    let v101 = v87.bitcast::< f8e8m0fnu > ();
    let v102 = v69.bitcast::< u16 > ();
    let v103 = v83.bitcast::< f16 > ();
    let v104 = v102.bitcast::< bf16 > ();
    let v105 = v14.bitcast::< f32 > ();
    let v106 = v84.bitcast::< u32 > ();
    let v107 = v15.bitcast::< i64 > ();
    let v108 = v61.bitcast::< f64 > ();
    let v109 = ct::select(v47.isnan(), ct::zeros::< f32, 2 > (v47.shape()), v47).bitcast::< i32 > ();
    let v110 = ct::select(v103.isnan(), ct::zeros::< f16, 2 > (v103.shape()), v103).bitcast::< u16 > ();
    let v111 = ct::select(v104.isnan(), ct::zeros::< bf16, 2 > (v104.shape()), v104).bitcast::< i16 > ();
    let v112 = ct::select(v3.isnan(), ct::zeros::< f64, 2 > (v3.shape()), v3).bitcast::< u64 > ();
    let v113 = v94.pack_to_bytes();
    let v114 = v86.unpack_from_bytes::<bool>();
    let v115 = v27.cast_narrow::< ct::packed::i1 > ().codes();
    let v116 = ct::packed::NarrowTile::< ct::packed::i1, 2 >::from_codes(v115).cast::< u64 > ();
    let v117 = ct::packed::NarrowTile::< ct::packed::i1, 2 >::from_codes(v87).cast_narrow::< ct::packed::u5 > ().codes();
    let v118 = v115.cast_narrow::< ct::packed::i2 > ().codes();
    let v119 = ct::packed::NarrowTile::< ct::packed::i2, 2 >::from_codes(v86).cast::< f32 > ();
    (v60, v63, v65, v81, v83, v84, v85, v86, v87, v88, v91, v92, v93, v94, v98, v100, v102, v108, v109, v111, v114, v117, v118)
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_2(v2: Tile<bf16, 2>, v8: Tile<i8, 2>, v12: Tile<u8, 2>, v13: Tile<u16, 2>, v17: Tile<u8, 2>, v22: Tile<i32, 2>, v35: Tile<f32, 2>, v45: Tile<f32, 2>, v58: Tile<i32, 2>, v81: Tile<i16, 2>, v83: Tile<i16, 2>, v85: Tile<i16, 2>, v86: Tile<u8, 2>, v87: Tile<u8, 2>, v88: Tile<i16, 2>, v102: Tile<u16, 2>, v117: Tile<u8, 2>, v118: Tile<u8, 2>) -> (Tile<u8, 2>, Tile<i16, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<i16, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<f32, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<i64, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<i32, 2>, Tile<u64, 2>, Tile<u8, 2>, Tile<f32, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<u16, 2>, Tile<u16, 2>) {
    let v120 = ct::packed::NarrowTile::< ct::packed::i2, 2 >::from_codes(v118).cast_narrow::< ct::packed::u6 > ().codes();
    let v121 = v117.cast_narrow::< ct::packed::i3 > ().codes();
    let v122 = ct::packed::NarrowTile::< ct::packed::i3, 2 >::from_codes(v120).cast::< i16 > ();
    let v123 = ct::packed::NarrowTile::< ct::packed::i3, 2 >::from_codes(v121).cast_narrow::< ct::packed::u7 > ().codes();
    let v124 = v123.cast_narrow::< ct::packed::i4 > ().codes();
    let v125 = ct::packed::NarrowTile::< ct::packed::i4, 2 >::from_codes(v12).cast::< i64 > ();
    let v126 = ct::packed::NarrowTile::< ct::packed::i4, 2 >::from_codes(v12).cast_narrow::< ct::packed::f3e1m1 > ().codes();
    let v127 = v85.cast_narrow::< ct::packed::i5 > ().codes();
    let v128 = ct::packed::NarrowTile::< ct::packed::i5, 2 >::from_codes(v123).cast::< f16 > ();
    let v129 = ct::packed::NarrowTile::< ct::packed::i5, 2 >::from_codes(v12).cast_narrow::< ct::packed::f4e1m2 > ().codes();
    let v130 = v2.cast_narrow::< ct::packed::i6 > ().codes();
    let v131 = ct::packed::NarrowTile::< ct::packed::i6, 2 >::from_codes(v87).cast::< f32 > ();
    let v132 = ct::packed::NarrowTile::< ct::packed::i6, 2 >::from_codes(v121).cast_narrow::< ct::packed::f4e2m1 > ().codes();
    let v133 = v22.cast_narrow::< ct::packed::i7 > ().codes();
    let v134 = ct::packed::NarrowTile::< ct::packed::i7, 2 >::from_codes(v132).cast::< i16 > ();
    let v135 = ct::packed::NarrowTile::< ct::packed::i7, 2 >::from_codes(v12).cast_narrow::< ct::packed::f5e1m3 > ().codes();
    let v136 = v124.cast_narrow::< ct::packed::u1 > ().codes();
    let v137 = ct::packed::NarrowTile::< ct::packed::u1, 2 >::from_codes(v129).cast::< bf16 > ();
    let v138 = ct::packed::NarrowTile::< ct::packed::u1, 2 >::from_codes(v87).cast_narrow::< ct::packed::f5e2m2 > ().codes();
    let v139 = v138.cast_narrow::< ct::packed::u2 > ().codes();
    let v140 = ct::packed::NarrowTile::< ct::packed::u2, 2 >::from_codes(v138).cast::< f16 > ();
    let v141 = ct::packed::NarrowTile::< ct::packed::u2, 2 >::from_codes(v133).cast_narrow::< ct::packed::f5e3m1 > ().codes();
    let v142 = v83.cast_narrow::< ct::packed::u3 > ().codes();
    let v143 = ct::packed::NarrowTile::< ct::packed::u3, 2 >::from_codes(v138).cast::< f32 > ();
    let v144 = ct::packed::NarrowTile::< ct::packed::u3, 2 >::from_codes(v121).cast_narrow::< ct::packed::f6e1m4 > ().codes();
    let v145 = v88.cast_narrow::< ct::packed::u4 > ().codes();
    let v146 = ct::packed::NarrowTile::< ct::packed::u4, 2 >::from_codes(v136).cast::< f64 > ();
    let v147 = ct::packed::NarrowTile::< ct::packed::u4, 2 >::from_codes(v145).cast_narrow::< ct::packed::f6e2m3 > ().codes();
    let v148 = v13.cast_narrow::< ct::packed::u5 > ().codes();
    let v149 = ct::packed::NarrowTile::< ct::packed::u5, 2 >::from_codes(v147).cast::< bf16 > ();
    let v150 = ct::packed::NarrowTile::< ct::packed::u5, 2 >::from_codes(v117).cast_narrow::< ct::packed::f6e3m2 > ().codes();
    let v151 = v102.cast_narrow::< ct::packed::u6 > ().codes();
    let v152 = ct::packed::NarrowTile::< ct::packed::u6, 2 >::from_codes(v86).cast::< u32 > ();
    let v153 = ct::packed::NarrowTile::< ct::packed::u6, 2 >::from_codes(v148).cast_narrow::< ct::packed::f6e4m1 > ().codes();
    let v154 = v45.cast_narrow::< ct::packed::u7 > ().codes();
    let v155 = ct::packed::NarrowTile::< ct::packed::u7, 2 >::from_codes(v151).cast::< u32 > ();
    let v156 = ct::packed::NarrowTile::< ct::packed::u7, 2 >::from_codes(v17).cast_narrow::< ct::packed::f7e1m5 > ().codes();
    let v157 = v35.cast_narrow::< ct::packed::f3e1m1 > ().codes();
    let v158 = ct::packed::NarrowTile::< ct::packed::f3e1m1, 2 >::from_codes(v144).cast::< i64 > ();
    let v159 = ct::packed::NarrowTile::< ct::packed::f3e1m1, 2 >::from_codes(v153).cast_narrow::< ct::packed::f7e2m4 > ().codes();
    let v160 = v156.cast_narrow::< ct::packed::f4e1m2 > ().codes();
    let v161 = ct::packed::NarrowTile::< ct::packed::f4e1m2, 2 >::from_codes(v151).cast::< i32 > ();
    let v162 = ct::packed::NarrowTile::< ct::packed::f4e1m2, 2 >::from_codes(v138).cast_narrow::< ct::packed::f7e3m3 > ().codes();
    let v163 = v148.cast_narrow::< ct::packed::f4e2m1 > ().codes();
    let v164 = ct::packed::NarrowTile::< ct::packed::f4e2m1, 2 >::from_codes(v117).cast::< u64 > ();
    let v165 = ct::packed::NarrowTile::< ct::packed::f4e2m1, 2 >::from_codes(v163).cast_narrow::< ct::packed::f7e4m2 > ().codes();
    let v166 = v81.cast_narrow::< ct::packed::f5e1m3 > ().codes();
    let v167 = ct::packed::NarrowTile::< ct::packed::f5e1m3, 2 >::from_codes(v117).cast::< f32 > ();
    let v168 = ct::packed::NarrowTile::< ct::packed::f5e1m3, 2 >::from_codes(v154).cast_narrow::< ct::packed::f7e5m1 > ().codes();
    let v169 = v86.cast_narrow::< ct::packed::f5e2m2 > ().codes();
    let v170 = ct::packed::NarrowTile::< ct::packed::f5e2m2, 2 >::from_codes(v162).cast::< u16 > ();
    let v171 = ct::packed::NarrowTile::< ct::packed::f5e2m2, 2 >::from_codes(v126).cast_narrow::< ct::packed::f8e5m3fnu > ().codes();
    let v172 = v8.cast_narrow::< ct::packed::f5e3m1 > ().codes();
    let v173 = ct::packed::NarrowTile::< ct::packed::f5e3m1, 2 >::from_codes(v163).cast::< u16 > ();
    let v174 = ct::packed::NarrowTile::< ct::packed::f5e3m1, 2 >::from_codes(v136).cast_narrow::< ct::packed::i1 > ().codes();
    let v175 = v169.cast_narrow::< ct::packed::f6e1m4 > ().codes();
    let v176 = ct::packed::NarrowTile::< ct::packed::f6e1m4, 2 >::from_codes(v154).cast::< bf16 > ();
    let v177 = ct::packed::NarrowTile::< ct::packed::f6e1m4, 2 >::from_codes(v139).cast_narrow::< ct::packed::i2 > ().codes();
    let v178 = v58.cast_narrow::< ct::packed::f6e2m3 > ().codes();
    let v179 = ct::packed::NarrowTile::< ct::packed::f6e2m3, 2 >::from_codes(v157).cast::< u16 > ();
    (v120, v122, v123, v126, v130, v132, v133, v134, v135, v138, v143, v148, v151, v158, v159, v160, v161, v164, v165, v167, v171, v172, v173, v179)
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_3(at: [Scalar<i32>; 2], packed_input_u1: ct::packed::PackedArray<ct::packed::u1, 2>, packed_input_i2: ct::packed::PackedArray<ct::packed::i2, 2>, packed_input_u3: ct::packed::PackedArray<ct::packed::u3, 2>, packed_input_u4: ct::packed::PackedArray<ct::packed::u4, 2>, packed_input_f4e2m1: ct::packed::PackedArray<ct::packed::f4e2m1, 2>, packed_input_i5: ct::packed::PackedArray<ct::packed::i5, 2>, packed_input_f6e3m2: ct::packed::PackedArray<ct::packed::f6e3m2, 2>, packed_input_i7: ct::packed::PackedArray<ct::packed::i7, 2>, packed_output_u1: ct::packed::PackedArrayMut<ct::packed::u1, 2>, packed_output_i2: ct::packed::PackedArrayMut<ct::packed::i2, 2>, packed_output_u3: ct::packed::PackedArrayMut<ct::packed::u3, 2>, packed_output_u4: ct::packed::PackedArrayMut<ct::packed::u4, 2>, packed_output_f4e2m1: ct::packed::PackedArrayMut<ct::packed::f4e2m1, 2>, packed_output_i5: ct::packed::PackedArrayMut<ct::packed::i5, 2>, packed_output_f6e3m2: ct::packed::PackedArrayMut<ct::packed::f6e3m2, 2>, packed_output_i7: ct::packed::PackedArrayMut<ct::packed::i7, 2>, v98: Tile<i8, 2>, v118: Tile<u8, 2>, v120: Tile<u8, 2>, v123: Tile<u8, 2>, v132: Tile<u8, 2>, v151: Tile<u8, 2>, v158: Tile<i64, 2>, v160: Tile<u8, 2>, v161: Tile<i32, 2>, v171: Tile<u8, 2>, v172: Tile<u8, 2>, v173: Tile<u16, 2>, v179: Tile<u16, 2>) -> (Tile<u8, 2>, Tile<i64, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<u16, 2>, Tile<u8, 2>, Tile<u32, 2>, Tile<u8, 2>, Tile<u8, 2>, Tile<i8, 2>, Tile<u64, 2>, Tile<bf16, 2>, Tile<i8, 2>, Tile<i16, 2>, Tile<u8, 2>, Tile<f64, 2>, Tile<i16, 2>, Tile<u16, 2>, Tile<u16, 2>, Tile<u32, 2>, Tile<i16, 2>, Tile<i8, 2>, Tile<bool, 2>, Tile<u16, 2>, Tile<f64, 2>, Tile<i32, 2>, Tile<i8, 2>, Tile<i32, 2>, Tile<i32, 2>) {
    let v180 = ct::packed::NarrowTile::< ct::packed::f6e2m3, 2 >::from_codes(v132).cast_narrow::< ct::packed::i3 > ().codes();
    let v181 = v179.cast_narrow::< ct::packed::f6e3m2 > ().codes();
    let v182 = ct::packed::NarrowTile::< ct::packed::f6e3m2, 2 >::from_codes(v118).cast::< u16 > ();
    let v183 = ct::packed::NarrowTile::< ct::packed::f6e3m2, 2 >::from_codes(v171).cast_narrow::< ct::packed::i4 > ().codes();
    let v184 = v158.cast_narrow::< ct::packed::f6e4m1 > ().codes();
    let v185 = ct::packed::NarrowTile::< ct::packed::f6e4m1, 2 >::from_codes(v181).cast::< i16 > ();
    let v186 = ct::packed::NarrowTile::< ct::packed::f6e4m1, 2 >::from_codes(v160).cast_narrow::< ct::packed::i5 > ().codes();
    let v187 = v98.cast_narrow::< ct::packed::f7e1m5 > ().codes();
    let v188 = ct::packed::NarrowTile::< ct::packed::f7e1m5, 2 >::from_codes(v151).cast::< i64 > ();
    let v189 = ct::packed::NarrowTile::< ct::packed::f7e1m5, 2 >::from_codes(v187).cast_narrow::< ct::packed::i6 > ().codes();
    let v190 = v120.cast_narrow::< ct::packed::f7e2m4 > ().codes();
    let v191 = ct::packed::NarrowTile::< ct::packed::f7e2m4, 2 >::from_codes(v190).cast::< u32 > ();
    let v192 = ct::packed::NarrowTile::< ct::packed::f7e2m4, 2 >::from_codes(v184).cast_narrow::< ct::packed::i7 > ().codes();
    let v193 = v191.cast_narrow::< ct::packed::f7e3m3 > ().codes();
    let v194 = ct::packed::NarrowTile::< ct::packed::f7e3m3, 2 >::from_codes(v183).cast::< u16 > ();
    let v195 = ct::packed::NarrowTile::< ct::packed::f7e3m3, 2 >::from_codes(v180).cast_narrow::< ct::packed::u1 > ().codes();
    let v196 = v173.cast_narrow::< ct::packed::f7e4m2 > ().codes();
    let v197 = ct::packed::NarrowTile::< ct::packed::f7e4m2, 2 >::from_codes(v123).cast::< u64 > ();
    let v198 = ct::packed::NarrowTile::< ct::packed::f7e4m2, 2 >::from_codes(v181).cast_narrow::< ct::packed::u2 > ().codes();
    let v199 = v183.cast_narrow::< ct::packed::f7e5m1 > ().codes();
    let v200 = ct::packed::NarrowTile::< ct::packed::f7e5m1, 2 >::from_codes(v199).cast::< u32 > ();
    let v201 = ct::packed::NarrowTile::< ct::packed::f7e5m1, 2 >::from_codes(v189).cast_narrow::< ct::packed::u3 > ().codes();
    let v202 = v161.cast_narrow::< ct::packed::f8e5m3fnu > ().codes();
    let v203 = ct::packed::NarrowTile::< ct::packed::f8e5m3fnu, 2 >::from_codes(v202).cast::< i64 > ();
    let v204 = ct::packed::NarrowTile::< ct::packed::f8e5m3fnu, 2 >::from_codes(v118).cast_narrow::< ct::packed::u4 > ().codes();
    let v205 = packed_input_u1.load([at [0] + 1i32, at [1] + 0i32], [8usize, 32usize]).cast::< f16 > ();
    let v206 = packed_output_u1.load_as::< i8 > (at, [8usize, 32usize]);
    packed_output_u1.store(at, v161.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::u1 > ());
    let v207 = packed_input_i2.load([at [0] + (-1i32), at [1] + 1i32], [8usize, 32usize]).cast::< u64 > ();
    let v208 = packed_output_i2.load_as::< bf16 > (at, [8usize, 32usize]);
    packed_output_i2.store(at, v200.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::i2 > ());
    let v209 = packed_input_u3.load([at [0] + (-1i32), at [1] + 0i32], [8usize, 32usize]).cast::< f16 > ();
    let v210 = packed_output_u3.load_as::< i8 > (at, [8usize, 32usize]);
    packed_output_u3.store(at, v210.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::u3 > ());
    let v211 = packed_input_u4.load([at [0] + 1i32, at [1] + 0i32], [8usize, 32usize]).cast::< i16 > ();
    let v212 = packed_output_u4.load_as::< i64 > (at, [8usize, 32usize]);
    packed_output_u4.store(at, v172.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::u4 > ());
    let v213 = packed_input_f4e2m1.load([at [0] + (-1i32), at [1] + (-1i32)], [8usize, 32usize]).cast::< u8 > ();
    let v214 = packed_output_f4e2m1.load_as::< f64 > (at, [8usize, 32usize]);
    packed_output_f4e2m1.store(at, v214.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::f4e2m1 > ());
    let v215 = packed_input_i5.load([at [0] + 1i32, at [1] + (-2i32)], [8usize, 32usize]).cast::< i16 > ();
    let v216 = packed_output_i5.load_as::< u64 > (at, [8usize, 32usize]);
    packed_output_i5.store(at, v207.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::i5 > ());
    let v217 = packed_input_f6e3m2.load([at [0] + (-1i32), at [1] + (-1i32)], [8usize, 32usize]).cast::< u16 > ();
    let v218 = packed_output_f6e3m2.load_as::< u16 > (at, [8usize, 32usize]);
    packed_output_f6e3m2.store(at, v206.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::f6e3m2 > ());
    let v219 = packed_input_i7.load([at [0] + 1i32, at [1] + (-1i32)], [8usize, 32usize]).cast::< i16 > ();
    let v220 = packed_output_i7.load_as::< u32 > (at, [8usize, 32usize]);
    packed_output_i7.store(at, v220.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::i7 > ());
    let v221 = { let _ = 0usize; ct::full::<i16, 2>([1usize, 1usize], <i16 as Element>::from_f64(8i32 as f64)) };
    let v222 = { let _ = 1usize; let top = 1u64 << (<i8 as Element>::DTYPE.bits() - 1); ct::full::<i8, 2>([8usize, 32usize], <i8 as Element>::from_bits([top, top + 1, u64::MAX, top - 1, top - 2][0usize])) };
    let v223 = { let _ = 3usize; ct::zeros::<bool, 2>([8usize, 1usize]) };
    let v224 = { let _ = 1usize; ct::ones::<u16, 2>([8usize, 32usize]) };
    let v225 = { let _ = 2usize; let from = |n: i32| <f64 as Element>::from_f64(n as f64); ct::arange_from([1usize, 32usize][1], from(5i32), from(1i32)).unsqueeze(0) };
    let v226 = { let _ = 1usize; ct::indices([8usize, 32usize], 0usize) };
    let v227 = { let _ = 2usize; ct::from_fn([1usize, 32usize], |[i, j]| i.ge(2).select(4i32 * i + j, j.min(i) - 4i32)) };
    let v228 = { let _ = 0usize; let table: Vec<i8> = (0..[1usize, 1usize][0] * [1usize, 1usize][1]).map(|i| <i8 as Element>::from_f64((i * 7usize % 11) as f64)).collect(); ct::from_slice([1usize, 1usize], &table) };
    let v229 = { let from = |k: i32| <i32 as Element>::from_f64(k as f64); ct::astile([[from(7i32), from(1)], [from(7i32 + 2), from(0)]]) };
    let v230 = ct::bid(0usize).to_tile::<2>();
    let v231 = ct::num_blocks(1usize).to_tile::<2>();
    (v184, v188, v189, v190, v192, v194, v198, v200, v201, v204, v206, v207, v208, v210, v211, v213, v214, v215, v217, v218, v220, v221, v222, v223, v224, v225, v227, v228, v230, v231)
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_4(input_bf16: Array<bf16, 2>, input_f8e8m0fnu: Array<f8e8m0fnu, 2>, input_i64: Array<i64, 2>, v8: Tile<i8, 2>, v16: Tile<bool, 2>, v19: Tile<i32, 2>, v24: Tile<i32, 2>, v27: Tile<f16, 2>, v28: Tile<f32, 2>, v35: Tile<f32, 2>, v56: Tile<bool, 2>, v58: Tile<i32, 2>, v65: Tile<i16, 2>, v84: Tile<i32, 2>, v92: Tile<bool, 2>, v100: Tile<f8e5m2, 2>, v108: Tile<f64, 2>, v109: Tile<i32, 2>, v130: Tile<u8, 2>, v133: Tile<u8, 2>, v164: Tile<u64, 2>, v165: Tile<u8, 2>, v167: Tile<f32, 2>, v171: Tile<u8, 2>, v190: Tile<u8, 2>, v192: Tile<u8, 2>, v194: Tile<u16, 2>, v198: Tile<u8, 2>, v204: Tile<u8, 2>, v206: Tile<i8, 2>, v210: Tile<i8, 2>, v214: Tile<f64, 2>, v217: Tile<u16, 2>, v218: Tile<u16, 2>, v221: Tile<i16, 2>, v222: Tile<i8, 2>, v223: Tile<bool, 2>, v224: Tile<u16, 2>, v230: Tile<i32, 2>, v231: Tile<i32, 2>) -> (Tile<i32, 2>, Tile<i32, 2>, Tile<i16, 2>, Tile<f32, 2>, Tile<u8, 2>, Tile<i32, 2>, Tile<bool, 2>, Tile<u16, 2>, Tile<i32, 2>, Tile<u16, 2>, Tile<i32, 2>, Tile<bool, 2>, Tile<bool, 2>, Tile<i32, 2>, Tile<u8, 2>, Tile<f32, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<u8, 2>, Tile<u8, 2>) {
    let v232 = input_i64.extent(0usize).to_tile::<2>();
    let v233 = (input_bf16.extent64(0) * 1000 + input_bf16.stride(0)).to_tile::<2>();
    let v234 = input_f8e8m0fnu.num_tiles(0usize, [4, 8]).to_tile::<2>();
    let v235 = v214.transpose();
    let v236 = v221.permute([1, 0]).swap_axes(0, 1).swap_axes(1, 0);
    let v237 = { let _ = 3usize; v167.reshape([8usize, 32usize]) };
    let v238 = v206.reshape([1, v206.len()]).squeeze(0).unsqueeze(1).squeeze(1).unsqueeze(0);
    let v239 = { let [rows, columns] = v109.shape(); v109.reshape([rows, 1 << 0usize, columns >> 0usize]).permute([1, 0, 2]).reshape([8usize, 8usize]) };
    let v240 = v192.broadcast_to([32usize, 8usize]);
    let v241 = v171.flip(0usize);
    let v242 = v231.flip(..);
    let v243 = v19.repeat([1 << 1usize, 1 << 1usize]);
    let v244 = v235.repeat_interleave(0usize, 2);
    let v245 = v16.interleave(v16, 0usize);
    let v246 = v218.gather(1usize, (v232 & 31).broadcast_to([8usize, 32usize]) - 3);
    let v247 = v194.gather(1usize, v194);
    let v248 = (v65 & <i16 as Element>::from_f64(31.0)).histogram(16).unsqueeze(0);
    let v249 = ct::cat([v100, v100], 1usize);
    let v250 = { let [a, b] = v239.split(0usize); ct::cat([a, v109, b], 0usize) };
    let v251 = ct::stack([v56, v92], 2usize).reshape([8usize, 16usize]);
    let (v252, v253) = { let [rows, columns] = v27.shape(); let [a, b] = v27.reshape([rows / 2, 2, columns]).unstack(1); (a, b) };
    let (v254, v255) = { let [a, b] = v198.split(1usize); (a, b) };
    let (v256, v257) = { let [_, a, _, b] = v84.split(1usize); (a, b) };
    let v258 = { let number = v242.item(); let last = (1 << 0usize) - 1; if 1usize == 0 { v254.extract((number, (1 << 0usize) - 1), [8usize, 4usize]) } else { v254.extract((last, number), [8usize, 4usize]) } };
    let v259 = { let number = v242.item(); let [rows, columns] = v165.shape(); let part = v130.extract([0, 0], [rows >> 3usize, columns >> 3usize]); let last = (1 << 3usize) - 1; if 0usize == 0 { v165.insert((number, (1 << 3usize) - 1), part) } else { v165.insert((last, number), part) } };
    let v260 = v210.get((v242.item(), v230.item())).to_tile::<2>();
    let v261 = v58.set((v242.item(), v232.item()), v231.item());
    let v262 = if 1usize == 2 { v260.sum (..) } else { v260.sum (1usize) };
    let v263 = if 1usize == 2 { v254.prod (..) } else { v254.prod (1usize) };
    let v264 = if 2usize == 2 { v133.reduce_max (..) } else { v133.reduce_max (2usize) };
    let v265 = if 2usize == 2 { v217.reduce_min (..) } else { v217.reduce_min (2usize) };
    let v266 = if 1usize == 2 { v261.reduce_xor (..) } else { v261.reduce_xor (1usize) };
    let v267 = if 0usize == 2 { v204.reduce_and (..) } else { v204.reduce_and (0usize) };
    let v268 = if 1usize == 2 { v231.reduce_or (..) } else { v231.reduce_or (1usize) };
    let v269 = if 0usize == 2 { v28.reduce_max_nan (..) } else { v28.reduce_max_nan (0usize) };
    let v270 = if 1usize == 2 { v108.reduce_min_nan (..) } else { v108.reduce_min_nan (1usize) };
    let v271 = { let v235 = ct::select(v235.isnan(), ct::ones::< f64, 2 > (v235.shape()), v235); if 2usize == 2 { v235.reduce_max (..) } else { v235.reduce_max (2usize) } };
    let v272 = { let v271 = ct::select(v271.isnan(), ct::ones::< f64, 2 > (v271.shape()), v271); if 1usize == 2 { v271.reduce_min (..) } else { v271.reduce_min (1usize) } };
    let v273 = if 0usize == 2 { v223.any(..) } else { v223.any(0usize) };
    let v274 = if 0usize == 2 { v273.all(..) } else { v273.all(0usize) };
    let v275 = if 2usize == 2 { v274.count(..) } else { v274.count(2usize) };
    let v276 = if 2usize == 2 { v223.sum_as::<u8>(..) } else { v223.sum_as::<u8>(2usize) };
    let v277 = if 0usize == 2 { v267.prod_as::<i64>(..) } else { v267.prod_as::<i64>(0usize) };
    let v278 = if 1usize == 2 { v264.sum_as::<f32>(..) } else { v264.cast::<f32>().sum(1usize) };
    let v279 = if 0usize == 2 { v272.argmax (..) } else { v272.argmax (0usize) };
    let v280 = if 0usize == 2 { v224.argmin (..) } else { v224.argmin (0usize) };
    let v281 = if 1usize == 2 { v35.argmax_nan (..) } else { v35.argmax_nan (1usize) };
    let v282 = if 1usize == 2 { v278.argmin_nan (..) } else { v278.argmin_nan (1usize) };
    let (v283, v284) = if 0usize == 2 { v222.argmax_with_value (..) } else { v222.argmax_with_value (0usize) };
    let (v285, v286) = if 1usize == 2 { v24.argmin_with_value (..) } else { v24.argmin_with_value (1usize) };
    let v287 = { let last = |a: Scalar<i32>, b: Scalar<i32>| b.ne(<i32 as Element>::from_f64(0.0)).select(b, a); let zero = <i32 as Element>::from_f64(0.0); if 2usize == 2 { v281.reduce(.., zero, last) } else { v281.reduce(2usize, zero, last) } };
    let v288 = { let zero = <u64 as Element>::from_f64(0.0); if 0usize == 2 { ct::reduce(v164, .., zero, |a, b| a + b + a * b) } else { ct::reduce(v164, 0usize, zero, |a, b| a + b + a * b) } };
    let (v289, v290) = { let identity = (<i8 as Element>::from_f64(1.0), <i8 as Element>::from_f64(0.0)); if 0usize == 2 { ct::reduce((v210, v8), .., identity, |(a, b), (c, d)| (a * c, c * b + d)) } else { ct::reduce((v210, v8), 0usize, identity, |(a, b), (c, d)| (a * c, c * b + d)) } };
    let v291 = { let plain = ct::ScanOptions::new(); let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()] [3usize]; v290.cumsum_with (1usize, options) };
    let v292 = { let plain = ct::ScanOptions::new(); let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()] [2usize]; v241.cumprod_with (0usize, options) };
    let v293 = { let plain = ct::ScanOptions::new(); let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()] [1usize]; v263.cummax_with (0usize, options) };
    let v294 = { let plain = ct::ScanOptions::new(); let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()] [3usize]; v267.cummin_with (1usize, options) };
    let v295 = { let v252 = ct::select(v252.isnan(), ct::ones::<f16, 2>(v252.shape()), v252); if 0usize == 1 { v252.cummax_with(1usize, ct::ScanOptions::new().reverse()) } else { v252.cummax(1usize) } };
    let v296 = { let v271 = ct::select(v271.isnan(), ct::ones::<f64, 2>(v271.shape()), v271); if 0usize == 1 { v271.cummin_with(0usize, ct::ScanOptions::new().reverse()) } else { v271.cummin(0usize) } };
    let v297 = { let plain = ct::ScanOptions::new(); let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()][2usize]; v190.cast::<f64>().cumsum_with(0usize, options) };
    (v232, v234, v236, v237, v240, v243, v245, v247, v256, v265, v268, v273, v274, v275, v276, v278, v279, v281, v282, v283, v286, v287, v293, v294)
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_5(at: [Scalar<i32>; 2], input_f32: Array<f32, 2>, input_f16: Array<f16, 2>, input_bf16: Array<bf16, 2>, input_f64: Array<f64, 2>, input_tf32: Array<tf32, 2>, input_f8e4m3fn: Array<f8e4m3fn, 2>, input_f8e5m2: Array<f8e5m2, 2>, input_f8e8m0fnu: Array<f8e8m0fnu, 2>, input_i8: Array<i8, 2>, input_i16: Array<i16, 2>, input_i32: Array<i32, 2>, input_i64: Array<i64, 2>, input_u8: Array<u8, 2>, input_u16: Array<u16, 2>, input_u32: Array<u32, 2>, output_f32: ArrayMut<f32, 2>, output_bf16: ArrayMut<bf16, 2>, output_f64: ArrayMut<f64, 2>, output_tf32: ArrayMut<tf32, 2>, output_f8e4m3fn: ArrayMut<f8e4m3fn, 2>, output_i8: ArrayMut<i8, 2>, output_i16: ArrayMut<i16, 2>, output_i32: ArrayMut<i32, 2>, output_u8: ArrayMut<u8, 2>, output_u16: ArrayMut<u16, 2>, output_u64: ArrayMut<u64, 2>, v16: Tile<bool, 2>, v91: Tile<bool, 2>, v148: Tile<u8, 2>, v207: Tile<u64, 2>, v211: Tile<i16, 2>, v215: Tile<i16, 2>, v223: Tile<bool, 2>, v227: Tile<i32, 2>, v228: Tile<i8, 2>, v230: Tile<i32, 2>, v231: Tile<i32, 2>, v232: Tile<i32, 2>, v234: Tile<i32, 2>, v243: Tile<i32, 2>, v265: Tile<u16, 2>, v268: Tile<i32, 2>, v273: Tile<bool, 2>, v274: Tile<bool, 2>, v275: Tile<i32, 2>, v279: Tile<i32, 2>, v281: Tile<i32, 2>, v282: Tile<i32, 2>, v283: Tile<i32, 2>, v286: Tile<i32, 2>, v287: Tile<i32, 2>, v294: Tile<u8, 2>) -> (Tile<u8, 2>, Tile<f8e5m2, 2>, Tile<u8, 2>, Tile<f16, 2>, Tile<f32, 2>, Tile<f8e8m0fnu, 2>, Tile<f8e4m3fn, 2>, Tile<tf32, 2>, Tile<i64, 2>, Tile<i8, 2>, Tile<i16, 2>, Tile<i32, 2>, Tile<u8, 2>, Tile<i32, 2>, Tile<i32, 2>, Tile<u64, 2>, Tile<f64, 2>, Tile<i32, 2>) {
    let v298 = { let plain = ct::ScanOptions::new(); let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()][0usize]; let zero = <u8 as Element>::from_f64(0.0); v294.scan_with(1usize, zero, |a, b| b.ne(zero).select(b, a), options) };
    let (v299, v300) = { let plain = ct::ScanOptions::new(); let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()][0usize]; let identity = (<u8 as Element>::from_f64(1.0), <u8 as Element>::from_f64(0.0)); ct::scan_with((v298, v298), 1usize, identity, |(a, b), (c, d)| (a * c, c * b + d), options) };
    let v301 = input_f8e8m0fnu.load([at[0] + (-1i32), at[1] + 1i32], [8usize, 32usize]);
    let v302 = input_i32.load([(v287.item() & 3) - 1, at[1]], [8usize, 32usize]);
    let v303 = input_f8e4m3fn.load_scalar(at).to_tile::<2>();
    let v304 = { let padding = [Padding::Zero, Padding::NegZero, Padding::NaN, Padding::PosInf, Padding::NegInf][0usize]; input_f16.load_with([at[0] + (-1i32), at[1] + 1i32], [8usize, 32usize], ct::LoadOptions::new().padding(padding)) };
    let v305 = { let options = ct::LoadOptions::new().latency(3).allow_tma(1usize == 1); input_f8e5m2.load_with([at[0] + (-1i32), at[1]], [8usize, 32usize], options) };
    let v306 = input_u8.load_with([at[1] + 1i32, at[0]], [32usize, 8usize], ct::LoadOptions::new().order([1, 0]));
    let v307 = { let low = <i16 as Element>::from_f64(63.0); input_f16.gather((v211 & low, v215 & low)) };
    let v308 = input_f32.gather((v287, v230));
    let v309 = { let options = ct::GatherOptions::new().mask(v274).padding(<f16 as Element>::from_f64(7i32 as f64)); input_f16.gather_with(((v287 & 63) - 5, (v243 & 63) - 5), options) };
    let v310 = input_i32.gather((v286 & 63, 9i32..9i32 + 16));
    let v311 = input_bf16.gather::<2>((v282.item() & 15, ct::span((v279.item() & 63) - 8, 8)));
    let v312 = input_i16.entry((v282.item() & 31, (v282.item() & 31) - 1)).load().to_tile::<2>();
    let v313 = input_f64.tiled([8usize, 32usize]).step([22usize, 14usize]).load([at[0] + 2i32, at[1] + (-1i32)]);
    let v314 = input_f64.tiled([8usize, 32usize]).padding(Padding::NegInf).load([at[0] + (-1i32), at[1] + 0i32]);
    let v315 = input_i32.tiled([32usize, 8usize]).order([1, 0]).load([at[1], at[0]]);
    let v316 = input_f8e8m0fnu.load((ct::at((v287.item() & 63) - 5), ct::at(2i32)), [8usize, 32usize]);
    let v317 = input_f64.load((ct::at(at[0] * [8usize, 32usize][0] + 1i32), ct::at(at[1] * [8usize, 32usize][1] + (-6i32))), [8usize, 32usize]);
    let v318 = input_f8e4m3fn.load((ct::at((v281 & 127).reshape([[8usize, 32usize][0]]) - 3), at[1]), [8usize, 32usize]);
    let v319 = input_tf32.load((at[0], ct::at((v286 & 127).reshape([[8usize, 32usize][1]]) - 3)), [8usize, 32usize]);
    let v320 = input_i64.slice(1usize, 18usize..18usize.max(72usize)).load(at, [8usize, 32usize]);
    let v321 = { let first = v287.item() & 31; input_i8.slice(0usize, first..first + 28i32).load(at, [8usize, 32usize]) };
    let v322 = input_u8.step(0, 3usize).step(1, 2usize).load(at, [8usize, 32usize]);
    let v323 = input_u32.step(1, v268.item() & 3).load(at, [8usize, 32usize]);
    let v324 = input_f8e4m3fn.index_axis(0, (v275.item() & 15) - 1).load(at[1], [[1usize, 32usize][1]]).unsqueeze(0);
    let v325 = { let turned = if 1usize == 0 { input_tf32.transpose() } else { input_tf32.permute([1, 0]) }; turned.load([at[1] + 1i32, at[0]], [32usize, 8usize]) };
    let v326 = input_i16.reshape::<1>(input_i16.extent(0) * input_i16.extent(1)).load(at[1] + (-1i32), [[1usize, 32usize][1]]).unsqueeze(0);
    let v327 = { let view = input_u16.tiled([4usize, 8usize]).step([2, 8usize]); ct::fold(view.tile_range(1), ct::zeros::<u16, 2>([4usize, 8usize]), |sum, j| sum * <u16 as Element>::from_f64(3.0) + view.load([at[0], j])) };
    let v328 = { let view = input_u32.tiled([8usize, 16usize]); ct::fold(view.indices(), ct::zeros::<u32, 2>([8usize, 16usize]), |sum, at| sum + view.load(at)) };
    output_f32.store(at, v308.broadcast_to([8usize, 32usize]));
    { let options = ct::StoreOptions::new().latency(2).allow_tma(false); output_f8e4m3fn.store_with(at, v318.broadcast_to([8usize, 32usize]), options) };
    { let turned = v311.broadcast_to([[8usize, 32usize][1], [8usize, 32usize][0]]); output_bf16.store_with([at[1], at[0]], turned, ct::StoreOptions::new().order([1, 0])) };
    output_i8.store([at[0], at[1] * 2 + 0i32], v228.broadcast_to([[8usize, 32usize][0], [8usize, 32usize][1] / 2]));
    { let first = at[1] * [8usize, 32usize][1] + (v275.item() & ([8usize, 32usize][1] as i32 / 2 - 1)); output_u16.store((at[0], ct::at(first)), v265.broadcast_to([[8usize, 32usize][0], [8usize, 32usize][1] / 2])) };
    { let rows = (ct::arange(0..[8usize, 32usize][0]) + (v268.item() & 63)) % [8usize, 32usize][0]; output_tf32.store((ct::at(at[0] * [8usize, 32usize][0] + rows), at[1]), v319.broadcast_to([8usize, 32usize])) };
    { let rows = at[0] * [8usize, 32usize][0] + (ct::indices([[8usize, 32usize][0], 1], 0) ^ (22usize % (1 << [8usize, 32usize][0].trailing_zeros())) as i32); let columns = at[1] * [8usize, 32usize][1] + (ct::indices([1, [8usize, 32usize][1]], 1) ^ (4usize % (1 << [8usize, 32usize][1].trailing_zeros())) as i32); output_i32.scatter((rows, columns), v227.broadcast_to([8usize, 32usize])) };
    { let rows = at[0] * [8usize, 32usize][0] + ct::indices([8usize, 32usize], 0); let columns = at[1] * [8usize, 32usize][1] + (ct::indices([8usize, 32usize], 1) ^ (47usize % (1 << [8usize, 32usize][1].trailing_zeros())) as i32); let options = ct::ScatterOptions::new().mask(v16.broadcast_to([8usize, 32usize])); output_u8.scatter_with((rows, columns), v148.broadcast_to([8usize, 32usize]), options) };
    { let columns = (ct::indices([1, [8usize, 32usize][1]], 1) + (v282.item() & 63)) % [8usize, 32usize][1]; let rows = at[0] * [8usize, 32usize][0] + ct::indices([[8usize, 32usize][0], 1], 0); output_f8e4m3fn.scatter((rows, at[1] * [8usize, 32usize][1] + columns), v303.broadcast_to([8usize, 32usize])) };
    { let column = at[1] * [8usize, 32usize][1] + (v231.item() & ([8usize, 32usize][1] as i32 - 1)); output_i16.entry((at[0] * [8usize, 32usize][0], column)).store(v312.item()) };
    output_f8e4m3fn.store_scalar([at[0] * [8usize, 32usize][0], at[1] * [8usize, 32usize][1] + 24usize % [8usize, 32usize][1]], v303.item());
    let v329 = output_i32.load(at, [8usize, 32usize]);
    let v330 = { let rows = at[0] * [8usize, 32usize][0] + (ct::indices([[8usize, 32usize][0], 1], 0) ^ (34usize % (1 << [8usize, 32usize][0].trailing_zeros())) as i32); let columns = at[1] * [8usize, 32usize][1] + (ct::indices([1, [8usize, 32usize][1]], 1) ^ (7usize % (1 << [8usize, 32usize][1].trailing_zeros())) as i32); output_u8.gather((rows, columns)) };
    let v331 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (38usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v274.broadcast_to([8usize, 32usize])); output_i32.atomic_add_with ((rows, columns), v232.broadcast_to([8usize, 32usize]), options) };
    let v332 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (24usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v274.broadcast_to([8usize, 32usize])); output_i32.atomic_sub_with ((rows, columns), v331.broadcast_to([8usize, 32usize]), options) };
    let v333 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (30usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v273.broadcast_to([8usize, 32usize])); output_i32.atomic_max_with ((rows, columns), v332.broadcast_to([8usize, 32usize]), options) };
    let v334 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (53usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v223.broadcast_to([8usize, 32usize])); output_u64.atomic_min_with ((rows, columns), v207.broadcast_to([8usize, 32usize]), options) };
    let v335 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (48usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v91.broadcast_to([8usize, 32usize])); output_i32.atomic_and_with ((rows, columns), v282.broadcast_to([8usize, 32usize]), options) };
    let v336 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (48usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v273.broadcast_to([8usize, 32usize])); output_i32.atomic_or_with ((rows, columns), v231.broadcast_to([8usize, 32usize]), options) };
    let v337 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (24usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v223.broadcast_to([8usize, 32usize])); output_i32.atomic_xor_with ((rows, columns), v279.broadcast_to([8usize, 32usize]), options) };
    let v338 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (48usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v274.broadcast_to([8usize, 32usize])); output_i32.atomic_xchg_with ((rows, columns), v230.broadcast_to([8usize, 32usize]), options) };
    let v339 = { let rows = at[0] * [8usize, 32usize][0] + ct::indices([8usize, 32usize], 0); let columns = at[1] * [8usize, 32usize][1] + (ct::indices([8usize, 32usize], 1) ^ (5usize % (1 << [8usize, 32usize][1].trailing_zeros())) as i32); let options = ct::AtomicOptions::new().mask(v274.broadcast_to([8usize, 32usize])); output_f64.atomic_xchg_with((rows, columns), v317.broadcast_to([8usize, 32usize]), options) };
    let v340 = { let rows = at[0] * [8usize, 32usize][0] + ct::indices([8usize, 32usize], 0); let columns = at[1] * [8usize, 32usize][1] + (ct::indices([8usize, 32usize], 1) ^ (0usize % (1 << [8usize, 32usize][1].trailing_zeros())) as i32); let here = output_i32.gather((rows, columns)); let expected = ct::select((ct::indices([8usize, 32usize], 1) & 1).eq(0), here, v335.broadcast_to([8usize, 32usize])); let options = ct::AtomicOptions::new().mask(v273.broadcast_to([8usize, 32usize])).acq_rel(ct::Scope::Device); let old = output_i32.atomic_cas_with((rows, columns), expected, v287.broadcast_to([8usize, 32usize]), options); ct::select(v273.broadcast_to([8usize, 32usize]), old, ct::zeros::<i32, 2>([8usize, 32usize])) };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0) / 2; let columns = at [1] * [8usize, 32usize] [1] + ct::indices([8usize, 32usize], 1) / 4; let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device); output_i32.atomic_add_with ((rows, columns), v234.broadcast_to([8usize, 32usize]), options); };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0) / 2; let columns = at [1] * [8usize, 32usize] [1] + ct::indices([8usize, 32usize], 1) / 4; let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device); output_i32.atomic_sub_with ((rows, columns), v340.broadcast_to([8usize, 32usize]), options); };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0) / 2; let columns = at [1] * [8usize, 32usize] [1] + ct::indices([8usize, 32usize], 1) / 4; let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device); output_i32.atomic_max_with ((rows, columns), v283.broadcast_to([8usize, 32usize]), options); };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0) / 2; let columns = at [1] * [8usize, 32usize] [1] + ct::indices([8usize, 32usize], 1) / 4; let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device); output_i32.atomic_min_with ((rows, columns), v275.broadcast_to([8usize, 32usize]), options); };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0) / 2; let columns = at [1] * [8usize, 32usize] [1] + ct::indices([8usize, 32usize], 1) / 4; let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device); output_i32.atomic_and_with ((rows, columns), v331.broadcast_to([8usize, 32usize]), options); };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0) / 2; let columns = at [1] * [8usize, 32usize] [1] + ct::indices([8usize, 32usize], 1) / 4; let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device); output_i32.atomic_or_with ((rows, columns), v282.broadcast_to([8usize, 32usize]), options); };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0) / 2; let columns = at [1] * [8usize, 32usize] [1] + ct::indices([8usize, 32usize], 1) / 4; let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device); output_i32.atomic_xor_with ((rows, columns), v231.broadcast_to([8usize, 32usize]), options); };
    (v300, v305, v306, v307, v308, v316, v318, v319, v320, v321, v326, v329, v330, v331, v332, v334, v339, v340)
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_6(at: [Scalar<i32>; 2], corner: ([Scalar<i32>; 2],), input_i32: Array<i32, 2>, input_u16: Array<u16, 2>, output_i32: ArrayMut<i32, 2>, output_i64: ArrayMut<i64, 2>, output_u8: ArrayMut<u8, 2>, output_u32: ArrayMut<u32, 2>, v13: Tile<u16, 2>, v16: Tile<bool, 2>, v25: Tile<i32, 2>, v26: Tile<f32, 2>, v30: Tile<f32, 2>, v60: Tile<i16, 2>, v63: Tile<i64, 2>, v91: Tile<bool, 2>, v94: Tile<bool, 2>, v111: Tile<i16, 2>, v122: Tile<i16, 2>, v130: Tile<u8, 2>, v134: Tile<i16, 2>, v143: Tile<f32, 2>, v159: Tile<u8, 2>, v165: Tile<u8, 2>, v188: Tile<i64, 2>, v201: Tile<u8, 2>, v207: Tile<u64, 2>, v215: Tile<i16, 2>, v225: Tile<f64, 2>, v230: Tile<i32, 2>, v234: Tile<i32, 2>, v236: Tile<i16, 2>, v243: Tile<i32, 2>, v247: Tile<u16, 2>, v256: Tile<i32, 2>, v268: Tile<i32, 2>, v273: Tile<bool, 2>, v274: Tile<bool, 2>, v276: Tile<u8, 2>, v282: Tile<i32, 2>, v287: Tile<i32, 2>, v293: Tile<u8, 2>, v306: Tile<u8, 2>, v308: Tile<f32, 2>, v318: Tile<f8e4m3fn, 2>, v320: Tile<i64, 2>, v332: Tile<i32, 2>, v340: Tile<i32, 2>) -> (Tile<i32, 2>, Tile<u16, 2>, Tile<f8e4m3fn, 2>, Tile<i64, 2>) {
    let v341 = output_i32.entry((corner.0[0], corner.0[1] + (v282.item() & 3))).atomic_add(v230.item()).to_tile::<2>();
    let v342 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (34usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); output_u32.gather_with((rows, columns), ct::GatherOptions::new().acquire (ct::Scope::Device)) };
    let v343 = { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (48usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); output_i64.gather_with((rows, columns), ct::GatherOptions::new().relaxed (ct::Scope::System)) };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (58usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); output_i32.scatter_with((rows, columns), v332.broadcast_to([8usize, 32usize]), ct::ScatterOptions::new().release (ct::Scope::Device)) };
    { let rows = at [0] * [8usize, 32usize] [0] + ct::indices([8usize, 32usize], 0); let columns = at [1] * [8usize, 32usize] [1] + (ct::indices([8usize, 32usize], 1) ^ (39usize % (1 << [8usize, 32usize] [1].trailing_zeros())) as i32); output_i32.scatter_with((rows, columns), v340.broadcast_to([8usize, 32usize]), ct::ScatterOptions::new().relaxed (ct::Scope::Block)) };
    let v344 = { let options = ct::GatherOptions::new().acquire(ct::Scope::Device); output_i64.entry((corner.0[0], corner.0[1] + (v287.item() & 3))).load_with(options).to_tile::<2>() };
    { let options = ct::ScatterOptions::new().release(ct::Scope::Device); output_i64.entry((corner.0[0], corner.0[1] + (v341.item() & 3))).store_with(v344.item(), options) };
    let v351 = ct::if_else(v91.any(..).item(), || {
        let v345 = ct::packed::NarrowTile::< ct::packed::f5e1m3, 2 >::from_codes(v165).cast::< u8 > ();
        let v346 = ct::packed::NarrowTile::< ct::packed::f6e4m1, 2 >::from_codes(v159).cast::< i16 > ();
        let v347 = ct::select(v16, v60, v215);
        v225
    }, || {
        let v348 = { let v320 = v320 & < i64 as Element >::from_bits((1 << (< i64 as Element >::DTYPE.bits() - 1)) - 1); { v344 / v320 } };
        let v349 = { let v341 = v341 & < i32 as Element >::from_bits((1 << (< i32 as Element >::DTYPE.bits() - 1)) - 1); { v243 % v341 } };
        let v350 = { let _ = 1usize; ct::from_fn([8usize, 32usize], |[i, j]| i.ge(2).select(5i32 * i + j, j.min(i) - 5i32)) };
        v225
    });
    ct::if_then(v94.any(..).item(), || {
        output_i32.store_scalar([at[0] * [8usize, 32usize][0], at[1] * [8usize, 32usize][1] + 16usize % [8usize, 32usize][1]], v234.item());
    });
    let (v356, v357) = ct::fold(..ct::bid(0) + 2, (v13, v351), |(v352, v353), i| {
        let v354 = i.cast::<i32>().to_tile::<2>();
        let v355 = v207.cast_narrow::< ct::packed::f5e2m2 > ().codes();
        (v247, v353)
    });
    let v363 = ct::fold(ct::range(5i32, ct::scalar(2i32) - (v230.item() & 3)).step(ct::scalar(-1i32) + (v230.item() & 1)), v63, |v358, i| {
        let v359 = i.cast::<i32>().to_tile::<2>();
        let (v360, v361) = { let identity = (<u8 as Element>::from_f64(1.0), <u8 as Element>::from_f64(0.0)); if 1usize == 2 { ct::reduce((v201, v306), .., identity, |(a, b), (c, d)| (a * c, c * b + d)) } else { ct::reduce((v201, v306), 1usize, identity, |(a, b), (c, d)| (a * c, c * b + d)) } };
        let v362 = ct::select(v273, v26, v26);
        v358
    });
    let (v369, v370, v371) = ct::fold(ct::range(ct::scalar(9223372036854775801i64), ct::scalar(9223372036854775804i64)).step(3i64), (v134, v143, v63), |(v364, v365, v366), i| {
        let v367 = i.cast::<i32>().to_tile::<2>();
        let v368 = v188.bitcast::< f64 > ();
        { let rows = (ct::arange(0..[8usize, 32usize][0]) + (v367.item() & 63)) % [8usize, 32usize][0]; output_u8.store((ct::at(at[0] * [8usize, 32usize][0] + rows), at[1]), v130.broadcast_to([8usize, 32usize])) };
        (v364, v365, v63)
    });
    let (v377, v378) = ct::fold(ct::range(ct::scalar(4294967288u32), ct::scalar(4294967289u32)).step(3), (v318, v371), |(v372, v373), i| {
        let v374 = i.cast::<i32>().to_tile::<2>();
        { let turned = v256.broadcast_to([[8usize, 32usize][1], [8usize, 32usize][0]]); output_i32.store_with([at[1], at[0]], turned, ct::StoreOptions::new().order([1, 0])) };
        let v375 = input_u16.gather((v341 & 63, (-1i32)..(-1i32) + 16));
        let v376 = { let _ = 2usize; ct::full::<u8, 2>([1usize, 32usize], <u8 as Element>::from_f64(3i32 as f64)) };
        (v372, v320)
    });
    let v385 = ct::fold(ct::range(3, 5).step(2).rev(), v293, |v379, i| {
        let v380 = i.cast::<i32>().to_tile::<2>();
        let v381 = ct::select(v274, v122, v122);
        let v382 = input_i32.load([(v268.item() & 3) - 1, at[1]], [8usize, 32usize]);
        let v383 = { let plain = ct::ScanOptions::new(); let options = [plain, plain.reverse(), plain.exclusive(), plain.reverse().exclusive()][0usize]; let zero = <i16 as Element>::from_f64(0.0); v236.scan_with(0usize, zero, |a, b| b.ne(zero).select(b, a), options) };
        let v384 = { let last = |a: Scalar<u8>, b: Scalar<u8>| b.ne(<u8 as Element>::from_f64(0.0)).select(b, a); let zero = <u8 as Element>::from_f64(0.0); if 2usize == 2 { v276.reduce(.., zero, last) } else { v276.reduce(2usize, zero, last) } };
        v293
    });
    let v390 = ct::fold(ct::range(0, ct::bid(1) + 0).unroll(2).num_stages(3), v25, |v386, i| {
        let v387 = i.cast::<i32>().to_tile::<2>();
        let v388 = v30.min(v308);
        let v389 = v111.repeat([1 << 2usize, 1 << 2usize]);
        v386
    });
    (v341, v356, v377, v378)
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_7(at: [Scalar<i32>; 2], input_f32: Array<f32, 2>, input_u64: Array<u64, 2>, output_f32: ArrayMut<f32, 2>, output_f16: ArrayMut<f16, 2>, output_bf16: ArrayMut<bf16, 2>, output_f64: ArrayMut<f64, 2>, output_tf32: ArrayMut<tf32, 2>, output_f8e4m3fn: ArrayMut<f8e4m3fn, 2>, output_f8e5m2: ArrayMut<f8e5m2, 2>, output_f8e8m0fnu: ArrayMut<f8e8m0fnu, 2>, output_i8: ArrayMut<i8, 2>, output_i16: ArrayMut<i16, 2>, output_i32: ArrayMut<i32, 2>, output_i64: ArrayMut<i64, 2>, output_u8: ArrayMut<u8, 2>, output_u16: ArrayMut<u16, 2>, output_u32: ArrayMut<u32, 2>, packed_input_i7: ct::packed::PackedArray<ct::packed::i7, 2>, packed_output_f4e2m1: ct::packed::PackedArrayMut<ct::packed::f4e2m1, 2>, v3: Tile<f64, 2>, v91: Tile<bool, 2>, v93: Tile<bool, 2>, v114: Tile<bool, 2>, v126: Tile<u8, 2>, v135: Tile<u8, 2>, v138: Tile<u8, 2>, v179: Tile<u16, 2>, v184: Tile<u8, 2>, v189: Tile<u8, 2>, v200: Tile<u32, 2>, v208: Tile<bf16, 2>, v211: Tile<i16, 2>, v213: Tile<u8, 2>, v220: Tile<u32, 2>, v221: Tile<i16, 2>, v223: Tile<bool, 2>, v225: Tile<f64, 2>, v234: Tile<i32, 2>, v237: Tile<f32, 2>, v240: Tile<u8, 2>, v243: Tile<i32, 2>, v245: Tile<bool, 2>, v274: Tile<bool, 2>, v276: Tile<u8, 2>, v278: Tile<f32, 2>, v281: Tile<i32, 2>, v287: Tile<i32, 2>, v300: Tile<u8, 2>, v305: Tile<f8e5m2, 2>, v306: Tile<u8, 2>, v307: Tile<f16, 2>, v316: Tile<f8e8m0fnu, 2>, v319: Tile<tf32, 2>, v321: Tile<i8, 2>, v326: Tile<i16, 2>, v329: Tile<i32, 2>, v330: Tile<u8, 2>, v331: Tile<i32, 2>, v339: Tile<f64, 2>, v341: Tile<i32, 2>, v356: Tile<u16, 2>, v377: Tile<f8e4m3fn, 2>, v378: Tile<i64, 2>) {
    let (v395, v396) = ct::fold_while(ct::range(2147483646i32, ct::scalar(2147483647i32) - (v234.item() & 3)).step(ct::scalar(0i32) + (v341.item() & 1)), (v225, v306), |(v391, v392), i| {
        let v393 = i.cast::<i32>().to_tile::<2>();
        packed_output_f4e2m1.store(at, v393.broadcast_to([8usize, 32usize]).cast_narrow::< ct::packed::f4e2m1 > ());
        let v394 = v278.repeat_interleave(1usize, 2);
        (!v114.any(..).item(), (v391, v189))
    });
    let v402 = ct::fold_with_control(..1, v243, |v397, i, flow| {
        let v398 = i.cast::<i32>().to_tile::<2>();
        let v399 = ct::select(v114, v114, v114);
        let v400 = v179.cast_narrow::< ct::packed::f5e1m3 > ().codes();
        flow.break_if(v93.any(..).item(), v397);
        flow.continue_if(v223.any(..).item(), v397);
        let v401 = input_u64.tiled([8usize, 32usize]).step([5usize, 39usize]).load([at[0] + 0i32, at[1] + 0i32]);
        v243
    });
    let (_, (v412, v413, v414)) = ct::loop_with_control((ct::scalar(0), (v220, v281, v339)), |(i, (v403, v404, v405)), flow| {
        flow.break_if(i.ge(1), (i, (v403, v404, v405)));
        let v406 = i.cast::<i32>().to_tile::<2>();
        let v407 = ct::select(v91, v330, v126);
        { let columns = (ct::indices([1, [8usize, 32usize][1]], 1) + (v287.item() & 63)) % [8usize, 32usize][1]; let rows = at[0] * [8usize, 32usize][0] + ct::indices([[8usize, 32usize][0], 1], 0); output_u8.scatter((rows, at[1] * [8usize, 32usize][1] + columns), v135.broadcast_to([8usize, 32usize])) };
        let v408 = output_f32.load(at, [8usize, 32usize]);
        flow.break_if(v245.any(..).item(), (i, (v403, v281, v3)));
        { let rows = at[0] * [8usize, 32usize][0] + (ct::indices([[8usize, 32usize][0], 1], 0) ^ (52usize % (1 << [8usize, 32usize][0].trailing_zeros())) as i32); let columns = at[1] * [8usize, 32usize][1] + (ct::indices([1, [8usize, 32usize][1]], 1) ^ (39usize % (1 << [8usize, 32usize][1].trailing_zeros())) as i32); output_i16.scatter((rows, columns), v221.broadcast_to([8usize, 32usize])) };
        let v409 = if 1usize == 2 { v403.sum (..) } else { v403.sum (1usize) };
        let v410 = input_f32.load_scalar(at).to_tile::<2>();
        let v411 = packed_input_i7.load([at [0] + (-1i32), at [1] + 1i32], [8usize, 32usize]).cast::< u8 > ();
        (i + 1, (v200, v404, v3))
    });
    let (_, (v425, v426, v427)) = ct::while_loop((ct::scalar(0), (v396, v213, v300)), |(i, (v415, v416, v417))| {
        let v418 = i.cast::<i32>().to_tile::<2>();
        let (v419, v420) = { let [_, a, _, b] = v211.split(0usize); (a, b) };
        i.lt(0) & v274.any(..).item()
    }, |(i, (v415, v416, v417))| {
        let v418 = i.cast::<i32>().to_tile::<2>();
        let (v419, v420) = { let [_, a, _, b] = v211.split(0usize); (a, b) };
        let v421 = v184.gt (v138);
        let v422 = output_u32.load(at, [8usize, 32usize]);
        let v423 = { let last = |a: Scalar<i32>, b: Scalar<i32>| b.ne(<i32 as Element>::from_f64(0.0)).select(b, a); let zero = <i32 as Element>::from_f64(0.0); if 0usize == 2 { v329.reduce(.., zero, last) } else { v329.reduce(0usize, zero, last) } };
        let v424 = if 2usize == 2 { v331.sum_as::<i8>(..) } else { v331.sum_as::<i8>(2usize) };
        (i + 1, (v240, v213, v300))
    });
    let v428 = { let (a, b) = (v276.item(), v287.item()); b.gt(3).select(a + <u8 as Element>::from_f64(1.0), a ^ b.cast::<u8>()).to_tile::<2>() };
    ct::return_if((ct::bid(0usize) % 3).eq(2i32));
    ct::return_if((v234.item() & <i32 as Element>::from_f64(7.0)).eq(<i32 as Element>::from_f64(5.0)));
    let v429 = { let bits = ([8usize, 32usize][0] * [8usize, 32usize][1]).ilog2(); let mut slots: Vec<u32> = (0..bits).map(|bit| 1 << bit).collect(); slots.sort_by_key(|basis| (basis.trailing_zeros() * 10u32 + 0u32) % 13); let count = ((bits as usize).saturating_sub(7usize) + 0usize).min(bits as usize); let mut lanes = slots.split_off(count); lanes.resize(7usize, 0); lanes.rotate_left(0u32 as usize % 7usize); let warps = lanes.split_off(5); v237.with_layout(ct::layout::Layout::new([8usize, 32usize].map(|extent| extent as i64), slots, lanes, warps)) };
    output_f32.store(at, v429.broadcast_to([8usize, 32usize]));
    output_f16.store(at, v307.broadcast_to([8usize, 32usize]));
    output_bf16.store(at, v208.broadcast_to([8usize, 32usize]));
    output_f64.store(at, v414.broadcast_to([8usize, 32usize]));
    output_tf32.store(at, v319.broadcast_to([8usize, 32usize]));
    output_f8e4m3fn.store(at, v377.broadcast_to([8usize, 32usize]));
    output_f8e5m2.store(at, v305.broadcast_to([8usize, 32usize]));
    output_f8e8m0fnu.store(at, v316.broadcast_to([8usize, 32usize]));
    output_i8.store(at, v321.broadcast_to([8usize, 32usize]));
    output_i16.store(at, v326.broadcast_to([8usize, 32usize]));
    output_i32.store(at, v413.broadcast_to([8usize, 32usize]));
    output_i64.store(at, v378.broadcast_to([8usize, 32usize]));
    output_u8.store(at, v428.broadcast_to([8usize, 32usize]));
    output_u16.store(at, v356.broadcast_to([8usize, 32usize]));
    output_u32.store(at, v412.broadcast_to([8usize, 32usize]));
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn part_8(at: [Scalar<i32>; 2], output_u64: ArrayMut<u64, 2>, output_bool: ArrayMut<bool, 2>, v274: Tile<bool, 2>, v334: Tile<u64, 2>) {
    output_u64.store(at, v334.broadcast_to([8usize, 32usize]));
    output_bool.store(at, v274.broadcast_to([8usize, 32usize]));
}

#[allow(unused_variables, unused_parens, unused_braces)]
fn kernel((input_f32, input_f16, input_bf16, input_f64, input_tf32, input_f8e4m3fn, input_f8e5m2, input_f8e8m0fnu): (Array<f32, 2>, Array<f16, 2>, Array<bf16, 2>, Array<f64, 2>, Array<tf32, 2>, Array<f8e4m3fn, 2>, Array<f8e5m2, 2>, Array<f8e8m0fnu, 2>), (input_i8, input_i16, input_i32, input_i64, input_u8, input_u16, input_u32, input_u64): (Array<i8, 2>, Array<i16, 2>, Array<i32, 2>, Array<i64, 2>, Array<u8, 2>, Array<u16, 2>, Array<u32, 2>, Array<u64, 2>), (input_bool,): (Array<bool, 2>,), (output_f32, output_f16, output_bf16, output_f64, output_tf32, output_f8e4m3fn, output_f8e5m2, output_f8e8m0fnu): (ArrayMut<f32, 2>, ArrayMut<f16, 2>, ArrayMut<bf16, 2>, ArrayMut<f64, 2>, ArrayMut<tf32, 2>, ArrayMut<f8e4m3fn, 2>, ArrayMut<f8e5m2, 2>, ArrayMut<f8e8m0fnu, 2>), (output_i8, output_i16, output_i32, output_i64, output_u8, output_u16, output_u32, output_u64): (ArrayMut<i8, 2>, ArrayMut<i16, 2>, ArrayMut<i32, 2>, ArrayMut<i64, 2>, ArrayMut<u8, 2>, ArrayMut<u16, 2>, ArrayMut<u32, 2>, ArrayMut<u64, 2>), (output_bool,): (ArrayMut<bool, 2>,), (packed_input_u1, packed_input_i2, packed_input_u3, packed_input_u4, packed_input_f4e2m1, packed_input_i5, packed_input_f6e3m2, packed_input_i7): (ct::packed::PackedArray<ct::packed::u1, 2>, ct::packed::PackedArray<ct::packed::i2, 2>, ct::packed::PackedArray<ct::packed::u3, 2>, ct::packed::PackedArray<ct::packed::u4, 2>, ct::packed::PackedArray<ct::packed::f4e2m1, 2>, ct::packed::PackedArray<ct::packed::i5, 2>, ct::packed::PackedArray<ct::packed::f6e3m2, 2>, ct::packed::PackedArray<ct::packed::i7, 2>), (packed_output_u1, packed_output_i2, packed_output_u3, packed_output_u4, packed_output_f4e2m1, packed_output_i5, packed_output_f6e3m2, packed_output_i7): (ct::packed::PackedArrayMut<ct::packed::u1, 2>, ct::packed::PackedArrayMut<ct::packed::i2, 2>, ct::packed::PackedArrayMut<ct::packed::u3, 2>, ct::packed::PackedArrayMut<ct::packed::u4, 2>, ct::packed::PackedArrayMut<ct::packed::f4e2m1, 2>, ct::packed::PackedArrayMut<ct::packed::i5, 2>, ct::packed::PackedArrayMut<ct::packed::f6e3m2, 2>, ct::packed::PackedArrayMut<ct::packed::i7, 2>)) {
    let at = [ct::bid(0), ct::bid(1)];
    let corner = ([at[0] * 8, at[1] * 32],);
    let (v2, v3, v8, v11, v12, v13, v14, v15, v16, v17, v19, v22, v24, v25, v26, v27, v28, v30, v32, v35, v45, v46, v47, v54, v56, v57, v58, v59) = part_0(at, input_f32, input_f16, input_bf16, input_f64, input_tf32, input_f8e4m3fn, input_f8e5m2, input_f8e8m0fnu, input_i8, input_i16, input_i32, input_i64, input_u8, input_u16, input_u32, input_u64, input_bool);
    let (v60, v63, v65, v81, v83, v84, v85, v86, v87, v88, v91, v92, v93, v94, v98, v100, v102, v108, v109, v111, v114, v117, v118) = part_1(v3, v8, v11, v12, v14, v15, v16, v17, v19, v25, v27, v32, v46, v47, v54, v56, v57, v58, v59);
    let (v120, v122, v123, v126, v130, v132, v133, v134, v135, v138, v143, v148, v151, v158, v159, v160, v161, v164, v165, v167, v171, v172, v173, v179) = part_2(v2, v8, v12, v13, v17, v22, v35, v45, v58, v81, v83, v85, v86, v87, v88, v102, v117, v118);
    let (v184, v188, v189, v190, v192, v194, v198, v200, v201, v204, v206, v207, v208, v210, v211, v213, v214, v215, v217, v218, v220, v221, v222, v223, v224, v225, v227, v228, v230, v231) = part_3(at, packed_input_u1, packed_input_i2, packed_input_u3, packed_input_u4, packed_input_f4e2m1, packed_input_i5, packed_input_f6e3m2, packed_input_i7, packed_output_u1, packed_output_i2, packed_output_u3, packed_output_u4, packed_output_f4e2m1, packed_output_i5, packed_output_f6e3m2, packed_output_i7, v98, v118, v120, v123, v132, v151, v158, v160, v161, v171, v172, v173, v179);
    let (v232, v234, v236, v237, v240, v243, v245, v247, v256, v265, v268, v273, v274, v275, v276, v278, v279, v281, v282, v283, v286, v287, v293, v294) = part_4(input_bf16, input_f8e8m0fnu, input_i64, v8, v16, v19, v24, v27, v28, v35, v56, v58, v65, v84, v92, v100, v108, v109, v130, v133, v164, v165, v167, v171, v190, v192, v194, v198, v204, v206, v210, v214, v217, v218, v221, v222, v223, v224, v230, v231);
    let (v300, v305, v306, v307, v308, v316, v318, v319, v320, v321, v326, v329, v330, v331, v332, v334, v339, v340) = part_5(at, input_f32, input_f16, input_bf16, input_f64, input_tf32, input_f8e4m3fn, input_f8e5m2, input_f8e8m0fnu, input_i8, input_i16, input_i32, input_i64, input_u8, input_u16, input_u32, output_f32, output_bf16, output_f64, output_tf32, output_f8e4m3fn, output_i8, output_i16, output_i32, output_u8, output_u16, output_u64, v16, v91, v148, v207, v211, v215, v223, v227, v228, v230, v231, v232, v234, v243, v265, v268, v273, v274, v275, v279, v281, v282, v283, v286, v287, v294);
    let (v341, v356, v377, v378) = part_6(at, corner, input_i32, input_u16, output_i32, output_i64, output_u8, output_u32, v13, v16, v25, v26, v30, v60, v63, v91, v94, v111, v122, v130, v134, v143, v159, v165, v188, v201, v207, v215, v225, v230, v234, v236, v243, v247, v256, v268, v273, v274, v276, v282, v287, v293, v306, v308, v318, v320, v332, v340);
    part_7(at, input_f32, input_u64, output_f32, output_f16, output_bf16, output_f64, output_tf32, output_f8e4m3fn, output_f8e5m2, output_f8e8m0fnu, output_i8, output_i16, output_i32, output_i64, output_u8, output_u16, output_u32, packed_input_i7, packed_output_f4e2m1, v3, v91, v93, v114, v126, v135, v138, v179, v184, v189, v200, v208, v211, v213, v220, v221, v223, v225, v234, v237, v240, v243, v245, v274, v276, v278, v281, v287, v300, v305, v306, v307, v316, v319, v321, v326, v329, v330, v331, v339, v341, v356, v377, v378);
    part_8(at, output_u64, output_bool, v274, v334);
}

fn array<T: Element>(device: &ct::Device, bits: &[u64], shape: [usize; 2]) -> ct::Result<ct::DeviceArray<T, 2>> {
    let data: Vec<T> = bits.iter().map(|&bits| Element::from_bits(bits)).collect();
    device.array(&data, shape)
}

fn packed<F: ct::packed::Narrow>(device: &ct::Device, codes: &[u8], shape: [usize; 2]) -> ct::Result<ct::packed::PackedDeviceArray<F, 2>> {
    let data: Vec<F> = codes.iter().map(|&code| F::from_code(code)).collect();
    device.packed(&data, shape)
}

/// The bits of what the kernel stores.
pub fn run(device: ct::Device) -> ct::Result<Vec<Vec<u64>>> {
    let input_f32 = array::<f32>(&device, &[0x32274a0d, 0x8bcd566c, 0x21be6ef3, 0xbf8ab0c3, 0x4b39a56c, 0xc00000, 0x3fe450e2, 0x80c00000, 0x1bb855f, 0xbec3852a, 0xb367faa1, 0xc0903f4a, 0xb2e01277, 0xbfc00000, 0x7effffff, 0xdbe99131, 0xbf7e666b, 0x282e8c86, 0x6a2e14bb, 0xba83126f, 0xa613df7a, 0x18fec291, 0xfeaa4f96, 0xc8f302d6, 0xc7433e7e, 0xbed9fc0d, 0xbe3c8fc1, 0x15ed0b38, 0x80800000, 0x7fc00000, 0x4b96f5fc, 0x3ee15e46, 0x4056b491, 0x3e5d6155, 0x99e8c36, 0xba83126f, 0xb75a59a, 0xcdbd81ac, 0x4051656d, 0xbe93a8ff, 0x3f9ac17f, 0xc059070d, 0xba83126f, 0x0, 0xee527631], [9, 5])?;
    let input_f16 = array::<f16>(&device, &[0xbf95, 0x8600, 0x13db, 0x9419, 0x57e7, 0x7aac, 0xbc0, 0x3c83, 0xb800, 0x4741, 0xf2ab, 0x9ee7, 0x3e41, 0xc3f0, 0xb260, 0xa2d5, 0xf0a6, 0xb169, 0x8400, 0x0, 0xe003, 0xb800, 0x5ca4, 0xa36b, 0x8abd, 0x2a0, 0x7704, 0x654f, 0xa23, 0x3ced, 0x1419, 0x375a, 0x27f7, 0xbb8e, 0x82df, 0x3930, 0x4a2b, 0x1419, 0x359b, 0x35d3, 0xfc69, 0x15b4, 0xbc00, 0xa3dc, 0x1419], [9, 5])?;
    let input_bf16 = array::<bf16>(&device, &[0xce56, 0x3f00, 0xdad, 0xc0, 0x2e1, 0xe0d7, 0x48ae, 0xbf80, 0x3fc0, 0xbf38, 0x4e20, 0xbf14, 0x406b, 0x0, 0xc321, 0x4082, 0xbfc0, 0xdd94, 0x98b8, 0x944a, 0xdfe3, 0xc638, 0x400b, 0xbedd, 0x90e, 0x3e89, 0xff80, 0x8080, 0xfeff, 0x3a83, 0x3e9a, 0x7066, 0x4046, 0xbec4, 0x1ca5, 0x4205, 0x6ca0, 0xde3d, 0x3ed6, 0x7eff, 0xbefc, 0xbef4, 0x598e, 0x407c, 0x57b5], [9, 5])?;
    let input_f64 = array::<f64>(&device, &[0x7f0a07a148701ed4, 0x97d820ee79ef163, 0x417fe748497a0019, 0x3fecf8b72e41876d, 0x28534b6c9dc576e6, 0x69552d8b005fb622, 0xc0009310f8ad66a0, 0x3611fb731a8ef7ec, 0x4010f9289893b2ed, 0x47a69a8ae2e94b2, 0x401a7e8337654578, 0xbfe96d43a74de2c2, 0x3fffe4f9d2de6c7f, 0x489aa7a85284026e, 0xbfcf580a0a0194f5, 0xc000000000000000, 0x66e43962d447b25c, 0x3fe1379d2b264e0e, 0x5859f94e0c1a7d12, 0xbfd032301d901ff3, 0xe66e9256b6973347, 0x12f6a35cca671770, 0xee9bcb631980fc00, 0x3fc0f83936444b6d, 0xfd65d8ad1842b28c, 0x40061e6ffd4a1244, 0x7c0f7a4522587069, 0xc64cdbd69f1373ab, 0xbfca039a51dafd10, 0x7ff8000000000000, 0x460bb217d95bfe52, 0xfbb73bb61a805671, 0x73228eab86589015, 0x0, 0x3f50624dd2f1a9fc, 0xe4307aa05eab09eb, 0xc004b266f2487433, 0xe56be68d42c20a58, 0xac2a83ddc74493eb, 0x3b74241abc1e8bd8, 0x8000000000000, 0x4e76e696f5720abe, 0x8018000000000000, 0xbfd94bf0c3d39cfb, 0xe314f9cbfc24401c], [9, 5])?;
    let input_tf32 = array::<tf32>(&device, &[0xff800000, 0x800000, 0x3f000000, 0xbe9f8000, 0x924fc000, 0x1bd44000, 0x9038000, 0xb947c000, 0xbfafe000, 0x0, 0x9523a000, 0xbf434000, 0x62fda000, 0xba832000, 0xfeffe000, 0xfeffe000, 0x55f7e000, 0x889c4000, 0x4a92a000, 0xc00000, 0x3f92c000, 0xbe722000, 0x4c854000, 0x8e308000, 0xbfc00000, 0x3fbaa000, 0x6087a000, 0x3fc00000, 0xc0400000, 0x2af74000, 0x74ffc000, 0xbfc00000, 0x3f000000, 0x608d2000, 0xe8d78000, 0x3fb64000, 0x4b532000, 0xf1536000, 0x46448000, 0x55bbe000, 0x40000000, 0x80000000, 0x400000, 0x1afa000, 0xc0a7e000], [9, 5])?;
    let input_f8e4m3fn = array::<f8e4m3fn>(&device, &[0xf6, 0xfe, 0x95, 0x25, 0xf5, 0x3c, 0xb8, 0x1, 0x2f, 0xb3, 0x85, 0xaf, 0xa9, 0x43, 0x99, 0x2e, 0x9a, 0xb3, 0xaf, 0x81, 0xc4, 0xe, 0x33, 0x78, 0x22, 0x2c, 0x25, 0x56, 0x69, 0x1f, 0x75, 0x94, 0x76, 0x76, 0x9d, 0x50, 0x9, 0x87, 0x1, 0xa2, 0x6b, 0x4a, 0x42, 0xf, 0xf4], [9, 5])?;
    let input_f8e5m2 = array::<f8e5m2>(&device, &[0xe8, 0x3e, 0xe0, 0x55, 0xed, 0x0, 0x82, 0xe1, 0xd9, 0xa8, 0x6a, 0xc0, 0xfb, 0x78, 0xbd, 0x1b, 0xc2, 0xfe, 0xc, 0xbe, 0x82, 0xbd, 0x43, 0x35, 0x33, 0x42, 0x7f, 0xba, 0xae, 0x14, 0x3c, 0xbe, 0x95, 0xc4, 0xf7, 0xc0, 0xe6, 0x14, 0x67, 0xa, 0x98, 0xc6, 0x77, 0x45, 0xfe], [9, 5])?;
    let input_f8e8m0fnu = array::<f8e8m0fnu>(&device, &[0x43, 0xfe, 0x48, 0x80, 0x82, 0x81, 0x4e, 0xd5, 0x7e, 0xfd, 0x7e, 0x8c, 0x80, 0x7e, 0x7d, 0xd0, 0x7c, 0x7f, 0x81, 0xa6, 0xe5, 0xb7, 0x7c, 0xd1, 0xd5, 0xc, 0x1e, 0xf8, 0x7c, 0xa4, 0x68, 0x62, 0x1, 0x96, 0x7f, 0x80, 0x90, 0xb8, 0x7f, 0x22, 0x16, 0x81, 0x89, 0x81, 0xc4], [9, 5])?;
    let input_i8 = array::<i8>(&device, &[0x6e, 0xca, 0x73, 0x28, 0x3d, 0xaa, 0xd1, 0x46, 0xfc, 0xf9, 0x6d, 0xca, 0xeb, 0x2, 0xa2, 0x7c, 0x1d, 0x7f, 0xf1, 0x7f, 0x90, 0x5, 0x45, 0xa1, 0x8c, 0x1e, 0x81, 0xb7, 0x0, 0xda, 0x1, 0xbf, 0xff, 0xfe, 0xb5, 0x2, 0x39, 0xfb, 0x7e, 0x20, 0x46, 0x27, 0x16, 0x1, 0x80], [9, 5])?;
    let input_i16 = array::<i16>(&device, &[0x2cf1, 0xffe0, 0x9dc7, 0x49, 0xee47, 0xa467, 0xbbbe, 0x7fff, 0xd3c, 0x5960, 0x48, 0x8778, 0x28f7, 0xffdc, 0x30, 0x5015, 0x19, 0x914f, 0x9e04, 0xffff, 0x5a, 0x5467, 0x8001, 0xf440, 0xe9da, 0x5c32, 0xfff5, 0x0, 0xfffe, 0x2, 0xffd0, 0x8000, 0x1c, 0xc261, 0xffff, 0xaa0a, 0xfee3, 0x2c60, 0xa425, 0x8c3a, 0x11f4, 0x1e, 0x51ed, 0x2c, 0xc18e], [9, 5])?;
    let input_i32 = array::<i32>(&device, &[0xb3d107df, 0xfada24de, 0xbe2558f6, 0x5a, 0x76b19039, 0x6494dca, 0xf, 0xffffffc8, 0xbd00aae1, 0x69d8fcf4, 0xffffffca, 0xffffffdd, 0xab2c4f69, 0xb54dc7a4, 0x427fbef8, 0x9f76e6f8, 0xffffffd8, 0x7fffffff, 0x0, 0x33d32946, 0x2, 0x272997d4, 0x50, 0x61, 0x98ded11, 0x2, 0x508fe035, 0x1695e6fd, 0x7, 0xfe4d0f8f, 0x304525b6, 0x628c4297, 0x384b0cc4, 0xffffffa1, 0xffffffc6, 0x8ceb1fae, 0x5e, 0x464b5ead, 0xedd4a1b8, 0xffffffea, 0xffffffdf, 0x66120cf2, 0xffffffc9, 0xd3932197, 0xd61cd2e4], [9, 5])?;
    let input_i64 = array::<i64>(&device, &[0x83e3a1bbf972e846, 0x467ac5279fb6ee40, 0x1, 0xc7fe7ccf273c07d7, 0xfffffffffffffffa, 0xfffffffffffffffe, 0x8000000000000000, 0x57df80556114f72c, 0xffffffffffffffb5, 0xffffffffffffffcf, 0x17a66240f28de440, 0xffffffffffffffff, 0xc6e3a4555f8e4d34, 0x7fffffffffffffff, 0xfffffffffffffffe, 0x0, 0x44003a054c5079f2, 0x672735eb24862f4f, 0xffffffffffffffb9, 0xfffffffffffffffb, 0x8000000000000000, 0xcbb140a50c462420, 0x6, 0x79ac80746bca21fb, 0x8000000000000001, 0x7fffffffffffffff, 0x44, 0x72fac4472c2c5459, 0xcd923d116e19f99c, 0x8000000000000001, 0xc5924c3fdc8a22f0, 0x27adf0a24152f7bd, 0xfffffffffffffffe, 0x8000000000000000, 0xfffffffffffffffe, 0xffffffffffffffaf, 0xfa3067cc36976dfd, 0x2e, 0x3b, 0x49, 0x7fffffffffffffff, 0x2d38d43be4eccfe6, 0xffffffffffffffd2, 0xeb2bf756e431e4d6, 0x7fffffffffffffff], [9, 5])?;
    let input_u8 = array::<u8>(&device, &[0x26, 0xe8, 0x80, 0x1e, 0xa7, 0x9b, 0xf, 0xca, 0x25, 0x27, 0x50, 0x43, 0x2, 0x4, 0xff, 0xa3, 0xdc, 0x89, 0xae, 0x7f, 0x86, 0x2, 0x25, 0x58, 0x81, 0xff, 0x3e, 0xfd, 0x7f, 0xb7, 0x79, 0x76, 0x0, 0xd2, 0x76, 0xa, 0xff, 0x7f, 0x3f, 0x81, 0xb5, 0x26, 0x38, 0x2, 0x44], [9, 5])?;
    let input_u16 = array::<u16>(&device, &[0x9758, 0x6f19, 0x4d, 0x4e16, 0x4894, 0x1d0f, 0xdd88, 0xb0cf, 0x1ec5, 0x1010, 0x7fff, 0x5c, 0x20, 0xffff, 0xd715, 0x8000, 0xffff, 0x636c, 0x29, 0xd9ff, 0x49, 0x26, 0x4c, 0x3d87, 0x5c, 0x2, 0xc18b, 0x3bc9, 0x9cf2, 0x1273, 0x13, 0x8000, 0x0, 0xfffe, 0x0, 0x72a7, 0x444d, 0x1a, 0x2, 0xf46b, 0x92e, 0x8000, 0xcd58, 0x0, 0x7b2e], [9, 5])?;
    let input_u32 = array::<u32>(&device, &[0x40f3a6aa, 0x6fb4b3c0, 0xee50bdc4, 0xf239970e, 0x26481e6f, 0x2e, 0x75c08773, 0xc13aa8a8, 0x28, 0x0, 0xa53e3124, 0xd24044fb, 0x4450919, 0x7fffffff, 0xe2885276, 0xe41ecafe, 0x80000001, 0x2c, 0x80000001, 0xffffffff, 0x986f398f, 0x0, 0x4e, 0x62a0105, 0x28, 0xfffffffe, 0x80000001, 0xf17e88f9, 0xfffffffe, 0xc62febe6, 0x43c7c8a8, 0x12, 0xc774298f, 0x80000000, 0x7fffffff, 0xc6f26800, 0xd5163551, 0xac93b407, 0x1c90485b, 0x80000000, 0x92ffe0a8, 0x66507f4c, 0x7fa4d1d, 0x6c757092, 0x23], [9, 5])?;
    let input_u64 = array::<u64>(&device, &[0x60d587ccfd97b20d, 0x47, 0x57d796caf2e7966, 0xed3b562db78e7045, 0x116f64a8d93fd0e0, 0x364a3bd97a2ef345, 0x16, 0x1642d217ff5a91e0, 0x2, 0x9, 0x64773bd42bc05298, 0xce09cf42ea82c65c, 0x20, 0xde07c624af146a25, 0x0, 0x1a, 0x1d, 0xbb8bb2a8d1d92cc, 0xffffffffffffffff, 0xfffffffffffffffe, 0x2b2ca0587f3fe58, 0x1, 0x6b235ce8c24ad5af, 0x56bbfd314c5a185f, 0xc54ba350db97378f, 0xc, 0x2d, 0x606b90858569981f, 0x63, 0x33033d3185b0e167, 0x26669b91cbecfe82, 0x10, 0x22ec3a5b053492d9, 0x1, 0x41, 0x494dac8fbd8d7b95, 0x25ee375f3d926d52, 0xfffffffffffffffe, 0xf7d4a3a412eab6cc, 0x304679b2cce0a561, 0x363ca3bfbea6f9fa, 0x4ecb6b1814f6098d, 0x1a, 0x11, 0x368035ec62e0571d], [9, 5])?;
    let input_bool = array::<bool>(&device, &[0x1, 0x0, 0x0, 0x0, 0x1, 0x0, 0x1, 0x1, 0x0, 0x1, 0x0, 0x1, 0x0, 0x1, 0x0, 0x0, 0x1, 0x0, 0x0, 0x0, 0x1, 0x1, 0x0, 0x1, 0x1, 0x1, 0x1, 0x0, 0x0, 0x1, 0x1, 0x0, 0x0, 0x1, 0x0, 0x1, 0x1, 0x0, 0x1, 0x0, 0x1, 0x1, 0x0, 0x0, 0x1], [9, 5])?;
    let mut output_f32 = array::<f32>(&device, &[0x3e1b019f, 0x98547bba, 0x408eaacc, 0xf6c78ec, 0xc0000000, 0x7f7fffff, 0xa85502af, 0xc0ccfa93, 0x2a77df81, 0x12b20b8d, 0x3e9e152d, 0x50325809, 0x7f800000, 0x48aa60d0, 0x5c8a8b17, 0xfeffffff, 0x409cb0b, 0x7effffff, 0xa8b3f36, 0x8536b562, 0xba83126f, 0xc0400000, 0x3f93b1b4, 0xaa44647c, 0x3efbbdaf, 0x766d3e3b, 0x4093056c, 0xbe90f53c, 0x40b7b232, 0xb6745a84, 0x84c05304, 0xd1330beb, 0x7be87c66, 0xff800000, 0xc00000, 0x40400000, 0x5c23921f, 0xc00000, 0x96e3f74b, 0x7f7fffff, 0xe4965d0, 0x2b878490, 0xc0400000, 0xbec4b531, 0x7fc656e7], [9, 5])?;
    let mut output_f16 = array::<f16>(&device, &[0xbad9, 0x43c0, 0xfbff, 0x8200, 0x441, 0x11d5, 0x5a8e, 0xd97d, 0x2c5f, 0x8600, 0xdb15, 0x5e11, 0xb021, 0x4157, 0x7bff, 0xb671, 0xb4ae, 0xa767, 0x6ec0, 0xb1e0, 0xc64e, 0x67e2, 0x34d2, 0x3a66, 0xc000, 0xbfe4, 0x77ff, 0x92fa, 0xec9d, 0xbe00, 0xbc00, 0x1c5, 0xc7df, 0xfe5c, 0x46b7, 0x5877, 0x45de, 0xd4e6, 0x341f, 0xed16, 0xab81, 0x4773, 0x1419, 0x74, 0xce6d], [9, 5])?;
    let mut output_bf16 = array::<bf16>(&device, &[0x1299, 0x7f7f, 0x5b24, 0x3f91, 0x4000, 0x40d2, 0x40a6, 0xf18d, 0x3f82, 0xba83, 0xbe2b, 0x3a83, 0x8b4f, 0x8a2a, 0x3113, 0x4020, 0x8040, 0xbf33, 0x3ed2, 0xf9f, 0x3f1c, 0x4ea0, 0x3f07, 0x8000, 0xbf30, 0xff80, 0xc0db, 0xda51, 0x40a8, 0x3fb3, 0x4087, 0x2fa4, 0xbf27, 0x125a, 0x3ec9, 0x79cd, 0x3e3b, 0x8c0c, 0x614f, 0x40, 0x1043, 0x7f7f, 0x8d13, 0x7f7f, 0x80c0], [9, 5])?;
    let mut output_f64 = array::<f64>(&device, &[0x8018000000000000, 0xfff0000000000000, 0xb0be33ce70bddf94, 0x0, 0x7ff0000000000000, 0x7ff0000000000000, 0xd02278b1e1e5592f, 0x3fdadcbb2409f643, 0xf5eb21beee9b5d97, 0x8000000000000, 0x10000000000000, 0x0, 0x3ff6ed12736f793a, 0xbf50624dd2f1a9fc, 0xde208f629e676ac2, 0x8018000000000000, 0xa2c57f3d4fcf5969, 0x8008000000000000, 0xb2c4e76464a8730f, 0xbfdfc4030a8fbaf6, 0xc5de7bca86db6e57, 0x588c2b0b827ce2f2, 0x375cc681d1b1fde8, 0x40152c0f870ddf98, 0x40132e70c556f29d, 0x629110937acb8278, 0xa6de57aea9c7194e, 0x3fe0000000000000, 0x95260d797a5cdeb5, 0xc00343bae88056ac, 0x87f0cf908cf3783d, 0xc01de79d32e02adb, 0x1db171a23abf1488, 0x947edc1f056279c9, 0xcd1fd5296cbad649, 0x27c149aa3774d0b3, 0xbf50624dd2f1a9fc, 0x9db1ba5676abb7c4, 0x249bc56a3a12749a, 0x9702d16d27c97a1c, 0x231f581aa52c2234, 0x52ab492a4b5f264d, 0x7fdfffffffffffff, 0xce89cd5e36715718, 0x3d4dde959381240f], [9, 5])?;
    let mut output_tf32 = array::<tf32>(&device, &[0x3ca2a000, 0xc33d2000, 0xbe50a000, 0xc01b0000, 0xe5304000, 0x80400000, 0x1a514000, 0x7fffe000, 0xb7c52000, 0x60162000, 0x65d68000, 0xbe4c2000, 0x46c8a000, 0x497b6000, 0xe418c000, 0x6d828000, 0xb3970000, 0x732b2000, 0x3f032000, 0x0, 0x3f800000, 0x68de000, 0x3fc00000, 0xaea3a000, 0x95f6c000, 0x764f6000, 0x400ea000, 0x19f7e000, 0x22f38000, 0xe48ec000, 0x7effe000, 0x3fc00000, 0x89d16000, 0xbf032000, 0x3e74e000, 0xfc01a000, 0x7f800000, 0x3e08c000, 0xc33e000, 0xfeffe000, 0xbe836000, 0x3ade6000, 0x3e9ac000, 0xfdc6000, 0x47288000], [9, 5])?;
    let mut output_f8e4m3fn = array::<f8e4m3fn>(&device, &[0xcd, 0x1c, 0xfb, 0xf2, 0xb, 0x27, 0x30, 0x38, 0xe8, 0x28, 0x3e, 0xb5, 0xfe, 0x1a, 0xca, 0x41, 0xb0, 0xd5, 0x8f, 0xfc, 0x87, 0xa6, 0x55, 0x59, 0x78, 0xa1, 0x5d, 0xc4, 0xc2, 0x54, 0x20, 0x25, 0x27, 0x7e, 0xc, 0x30, 0x2c, 0xb, 0x0, 0x30, 0x81, 0xb2, 0x2d, 0xc4, 0xed], [9, 5])?;
    let mut output_f8e5m2 = array::<f8e5m2>(&device, &[0x64, 0x3e, 0xd4, 0x8d, 0xc6, 0x4c, 0x5c, 0xc2, 0x8c, 0x8e, 0x14, 0x82, 0x5, 0x92, 0x33, 0x94, 0x2, 0x97, 0xa1, 0xb3, 0x86, 0xc5, 0xbe, 0xe3, 0x63, 0xa3, 0x7d, 0x72, 0xb6, 0xb9, 0xed, 0xf6, 0xd6, 0x76, 0xb4, 0x35, 0xc7, 0xc2, 0xb8, 0xf5, 0x84, 0x94, 0x3a, 0x3a, 0x38], [9, 5])?;
    let mut output_f8e8m0fnu = array::<f8e8m0fnu>(&device, &[0xbe, 0xff, 0xb4, 0xc4, 0x80, 0x7f, 0x80, 0x7f, 0x7f, 0x7d, 0x75, 0xbb, 0x78, 0xe, 0x1, 0x27, 0x0, 0xcd, 0x8f, 0x8, 0x81, 0x74, 0x78, 0x9a, 0x49, 0x91, 0xdf, 0x75, 0x7d, 0xa5, 0x2a, 0x1, 0xfe, 0x9c, 0xd5, 0xfd, 0x7f, 0x80, 0xab, 0xfa, 0xfe, 0x7c, 0x0, 0xfd, 0x40], [9, 5])?;
    let mut output_i8 = array::<i8>(&device, &[0x81, 0x19, 0x81, 0x55, 0x6c, 0x23, 0x2, 0x61, 0xc2, 0x18, 0xdc, 0xff, 0xfe, 0x7f, 0x86, 0x2f, 0x7f, 0x1, 0x58, 0x3c, 0x7f, 0x45, 0x43, 0x80, 0xc2, 0x1, 0xd0, 0xbe, 0x1, 0x5d, 0x7f, 0x25, 0xbd, 0xed, 0xfb, 0x0, 0x63, 0x0, 0xeb, 0x1b, 0x64, 0xfe, 0x4, 0xe4, 0x22], [9, 5])?;
    let mut output_i16 = array::<i16>(&device, &[0x89d8, 0x6c6e, 0xffdf, 0x57c2, 0x0, 0x54, 0x783e, 0x7639, 0xfffe, 0x8001, 0xffcc, 0xfffe, 0xfff3, 0x4de0, 0xfffa, 0x16, 0xd8b, 0x3c90, 0x8000, 0x9eb5, 0x31c, 0x5b51, 0x26ba, 0xffa8, 0x1952, 0x3a1c, 0xbf2a, 0x0, 0x2, 0xfffe, 0xfffe, 0x8000, 0x1, 0xffac, 0x49, 0x91be, 0xb645, 0x93dc, 0xd26b, 0x9fc0, 0x3297, 0x57, 0x6fea, 0xf5b6, 0x3859], [9, 5])?;
    let mut output_i32 = array::<i32>(&device, &[0xc26edca4, 0xf6bc979, 0xd809a67, 0xbdf4e563, 0xcb29699d, 0xc8decb08, 0x80000000, 0x478a4c56, 0xff6ace3a, 0x2a, 0xfffffffe, 0x48, 0xbd280430, 0xd1d898e3, 0x1, 0x1636c11c, 0x80000000, 0xffffffff, 0xcc897dcf, 0x53324022, 0x63ab358e, 0x9134597a, 0xfffffffe, 0xf, 0x115f035f, 0x1, 0xd7287710, 0x7fffffff, 0xd310b275, 0xbb1e8ce1, 0x9b1a3b11, 0xc7c70a18, 0x2, 0x228eb136, 0xfffffff8, 0xfffffffe, 0x90021771, 0x1, 0x494023f9, 0x80000001, 0x1, 0x1, 0x2a, 0x2, 0xffffffac], [9, 5])?;
    let mut output_i64 = array::<i64>(&device, &[0x3d1d6f3bf817c10d, 0x1, 0x2, 0xffffffffffffffff, 0x7fffffffffffffff, 0x31, 0xd960dc8eaa5c5694, 0x1d, 0x195c0e85d8438a05, 0x10, 0x4568b84904c4f167, 0x8000000000000001, 0x7fffffffffffffff, 0x2, 0x20, 0x1054fc8dcdc33a17, 0x0, 0x47a9ccb5ce4e0991, 0x1, 0x41, 0xffffffffffffffff, 0x6e6aea5daafae5c7, 0x22cbb844643a681, 0xffffffffffffffa2, 0x2, 0x8000000000000000, 0x61c8d8bf78bf8398, 0xffffffffffffffad, 0xfffffffffffffffe, 0x8000000000000000, 0xffffffffffffffff, 0x3aa4b4718b92a2d8, 0xabcea8320e3a120a, 0x1ea64caad28908e8, 0xfffffffffffffffe, 0x0, 0xffffffffffffffff, 0xffffffffffffffb0, 0x83d45c611a60868e, 0x12d5231f9c6f6b4, 0xa87d0a884239b025, 0xffffffffffffffff, 0xfffffffffffffff8, 0xffffffffffffffff, 0x1a048a5cc97fc181], [9, 5])?;
    let mut output_u8 = array::<u8>(&device, &[0x1, 0xfa, 0x81, 0x1, 0x46, 0x4d, 0x6, 0x4b, 0x81, 0xd, 0x3a, 0x7f, 0x13, 0xe1, 0xfe, 0x25, 0x48, 0x5d, 0x80, 0x2c, 0x9c, 0x2c, 0x2c, 0xfe, 0x6, 0x38, 0x35, 0x80, 0xff, 0x0, 0xc5, 0xa2, 0xc7, 0x58, 0x7f, 0x61, 0x56, 0x63, 0x5a, 0xff, 0xde, 0x7f, 0xfe, 0x2d, 0x16], [9, 5])?;
    let mut output_u16 = array::<u16>(&device, &[0x8001, 0x6d16, 0xffff, 0x44f0, 0x2b, 0x8093, 0x7fff, 0x5c43, 0x3142, 0x8000, 0x1, 0xff2e, 0x414b, 0x62a4, 0xffff, 0x6, 0x2b49, 0x70a7, 0x7e9b, 0x8000, 0x8a30, 0xe698, 0x4a45, 0x0, 0xba24, 0x7fff, 0x92b8, 0x66d2, 0x1, 0xf615, 0x5911, 0x0, 0xd8fb, 0x8621, 0x8000, 0x8981, 0xa5f4, 0x1fae, 0x5e, 0x8001, 0x7fff, 0x3, 0x8d35, 0x1a, 0x19d2], [9, 5])?;
    let mut output_u32 = array::<u32>(&device, &[0xc01f4134, 0xfffffffe, 0x58, 0x2, 0x4ea50dc6, 0x28eb0753, 0x3d, 0x4e, 0x7fffffff, 0xde871291, 0x912f6c66, 0x0, 0xfffffffe, 0xaf34669d, 0x32, 0x1361aaf9, 0xc09c317d, 0xf58282c, 0x80000000, 0x9be6093, 0xdfb3cd12, 0x80000000, 0x0, 0xbeb5fb3f, 0xf722f33b, 0x22, 0x3203a5bb, 0x3f, 0x1102ed11, 0x156276fe, 0xccc5280, 0xf0bda9f4, 0x80000001, 0xa6e1575c, 0x1, 0x57, 0x18, 0x18, 0x27, 0xb96715bb, 0xcab7af38, 0x1, 0x44, 0x28, 0x2], [9, 5])?;
    let mut output_u64 = array::<u64>(&device, &[0x2, 0xe92c0fe7bf9f544, 0x862245f95dce7e16, 0x49c5bdb1ca620432, 0x28b54768953d6b48, 0x5d6e4454a140e4a1, 0xcd40eefe14fa4189, 0xb072bcf66d422af1, 0x5472094887652835, 0xd130315775a7cfb9, 0x4dd8abb08931ae09, 0xef1d13f41882ab65, 0x8000000000000001, 0xebb8f31d68232a4a, 0xddca00e4428c28b, 0xf6e528ebb3e2c111, 0x1de9e386dd388b6d, 0xb72a44b5378d90b3, 0xbe939bb386eae201, 0x5752af77e89174fb, 0xb7fa71a973df7e81, 0x47, 0x7fffffffffffffff, 0x588a7765895ffae4, 0x1, 0x47, 0x8000000000000000, 0x8000000000000000, 0x4a7075981f3e1d1f, 0x9968f6a72b27b831, 0x25, 0x0, 0x0, 0x65b58f1da0c7a9bb, 0x1, 0xa6cc8f20a80e11ba, 0x8000000000000000, 0x2, 0xfffffffffffffffe, 0xb013126869644adc, 0x1a, 0x7fffffffffffffff, 0x282f002736ab84af, 0xe6652ed7ea45858a, 0x1], [9, 5])?;
    let mut output_bool = array::<bool>(&device, &[0x1, 0x1, 0x1, 0x1, 0x0, 0x1, 0x1, 0x1, 0x1, 0x1, 0x1, 0x1, 0x1, 0x0, 0x1, 0x1, 0x1, 0x1, 0x0, 0x1, 0x1, 0x1, 0x0, 0x1, 0x1, 0x1, 0x0, 0x0, 0x1, 0x1, 0x0, 0x1, 0x0, 0x0, 0x1, 0x1, 0x1, 0x1, 0x1, 0x1, 0x0, 0x0, 0x1, 0x1, 0x0], [9, 5])?;
    let packed_input_u1 = packed::<ct::packed::u1>(&device, &[0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 1, 0], [9, 5])?;
    let packed_input_i2 = packed::<ct::packed::i2>(&device, &[2, 2, 0, 1, 1, 0, 2, 0, 2, 1, 2, 1, 1, 0, 0, 2, 2, 0, 2, 0, 1, 2, 3, 3, 3, 2, 3, 3, 2, 3, 3, 3, 2, 0, 2, 3, 2, 3, 2, 0, 2, 1, 0, 0, 2], [9, 5])?;
    let packed_input_u3 = packed::<ct::packed::u3>(&device, &[4, 5, 7, 7, 7, 0, 6, 0, 2, 4, 7, 5, 1, 0, 7, 6, 5, 3, 2, 7, 7, 5, 3, 2, 5, 7, 0, 6, 4, 7, 5, 3, 5, 2, 7, 1, 0, 0, 3, 7, 0, 2, 7, 4, 0], [9, 5])?;
    let packed_input_u4 = packed::<ct::packed::u4>(&device, &[14, 7, 4, 15, 3, 8, 11, 0, 8, 0, 3, 13, 0, 3, 0, 2, 10, 11, 0, 4, 12, 0, 12, 0, 1, 1, 13, 15, 15, 2, 15, 6, 11, 3, 1, 4, 0, 15, 1, 10, 10, 15, 0, 12, 15], [9, 5])?;
    let packed_input_f4e2m1 = packed::<ct::packed::f4e2m1>(&device, &[4, 1, 14, 5, 3, 0, 6, 10, 7, 0, 2, 0, 2, 1, 13, 1, 12, 6, 2, 4, 3, 2, 14, 15, 2, 2, 1, 15, 14, 12, 2, 3, 0, 5, 13, 14, 15, 2, 0, 4, 8, 2, 10, 8, 12], [9, 5])?;
    let packed_input_i5 = packed::<ct::packed::i5>(&device, &[9, 13, 31, 23, 2, 31, 14, 29, 29, 2, 28, 13, 27, 10, 0, 12, 25, 1, 14, 31, 14, 31, 15, 5, 28, 12, 10, 0, 3, 13, 20, 1, 18, 25, 6, 1, 18, 10, 2, 18, 29, 17, 18, 31, 7], [9, 5])?;
    let packed_input_f6e3m2 = packed::<ct::packed::f6e3m2>(&device, &[2, 47, 34, 0, 56, 50, 37, 0, 16, 8, 23, 16, 0, 6, 28, 40, 44, 54, 1, 1, 2, 1, 29, 21, 4, 59, 15, 12, 16, 27, 27, 55, 0, 11, 62, 21, 2, 30, 5, 21, 62, 11, 46, 39, 32], [9, 5])?;
    let packed_input_i7 = packed::<ct::packed::i7>(&device, &[22, 4, 59, 0, 19, 106, 119, 75, 0, 21, 59, 5, 5, 127, 53, 99, 91, 7, 24, 53, 119, 80, 1, 7, 35, 113, 11, 33, 63, 43, 127, 47, 96, 25, 51, 114, 126, 123, 93, 68, 5, 28, 127, 55, 77], [9, 5])?;
    let mut packed_output_u1 = packed::<ct::packed::u1>(&device, &[1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0], [9, 5])?;
    let mut packed_output_i2 = packed::<ct::packed::i2>(&device, &[0, 2, 0, 1, 2, 1, 2, 2, 2, 0, 1, 1, 0, 0, 1, 3, 1, 3, 2, 2, 1, 0, 3, 0, 2, 0, 1, 1, 1, 3, 0, 2, 1, 1, 0, 2, 1, 1, 3, 0, 3, 2, 2, 2, 3], [9, 5])?;
    let mut packed_output_u3 = packed::<ct::packed::u3>(&device, &[4, 7, 2, 4, 3, 7, 5, 7, 4, 2, 1, 0, 0, 5, 2, 2, 4, 4, 6, 1, 1, 0, 1, 1, 0, 5, 7, 0, 6, 4, 6, 7, 0, 1, 4, 4, 2, 4, 1, 4, 0, 4, 2, 0, 1], [9, 5])?;
    let mut packed_output_u4 = packed::<ct::packed::u4>(&device, &[0, 15, 2, 15, 7, 3, 4, 15, 14, 0, 12, 13, 2, 2, 1, 15, 13, 8, 4, 10, 0, 6, 12, 6, 8, 3, 14, 9, 15, 1, 7, 13, 0, 12, 5, 6, 5, 12, 14, 1, 6, 0, 1, 12, 0], [9, 5])?;
    let mut packed_output_f4e2m1 = packed::<ct::packed::f4e2m1>(&device, &[11, 13, 13, 6, 3, 1, 14, 6, 12, 11, 11, 10, 1, 15, 1, 2, 10, 8, 4, 0, 15, 8, 2, 1, 0, 1, 8, 8, 3, 9, 0, 2, 13, 1, 0, 11, 3, 11, 15, 9, 2, 7, 0, 0, 1], [9, 5])?;
    let mut packed_output_i5 = packed::<ct::packed::i5>(&device, &[17, 21, 30, 15, 1, 8, 19, 5, 18, 31, 17, 19, 3, 0, 10, 5, 18, 8, 12, 18, 8, 6, 3, 7, 2, 7, 26, 1, 21, 0, 25, 8, 5, 2, 0, 31, 0, 31, 1, 16, 13, 1, 31, 16, 9], [9, 5])?;
    let mut packed_output_f6e3m2 = packed::<ct::packed::f6e3m2>(&device, &[26, 10, 29, 22, 52, 61, 28, 28, 19, 14, 3, 48, 6, 52, 13, 0, 36, 27, 40, 47, 14, 51, 11, 62, 46, 0, 32, 0, 28, 0, 12, 28, 4, 0, 28, 45, 45, 53, 27, 1, 0, 27, 53, 48, 54], [9, 5])?;
    let mut packed_output_i7 = packed::<ct::packed::i7>(&device, &[2, 28, 72, 126, 58, 127, 83, 30, 1, 114, 2, 127, 113, 108, 25, 90, 101, 62, 86, 127, 43, 14, 78, 36, 1, 61, 45, 69, 19, 32, 115, 82, 114, 49, 27, 119, 15, 77, 0, 67, 1, 103, 71, 92, 98], [9, 5])?;
    ct::launch(kernel, [2, 1], ((&input_f32, &input_f16, &input_bf16, &input_f64, &input_tf32, &input_f8e4m3fn, &input_f8e5m2, &input_f8e8m0fnu), (&input_i8, &input_i16, &input_i32, &input_i64, &input_u8, &input_u16, &input_u32, &input_u64), (&input_bool,), (&mut output_f32, &mut output_f16, &mut output_bf16, &mut output_f64, &mut output_tf32, &mut output_f8e4m3fn, &mut output_f8e5m2, &mut output_f8e8m0fnu), (&mut output_i8, &mut output_i16, &mut output_i32, &mut output_i64, &mut output_u8, &mut output_u16, &mut output_u32, &mut output_u64), (&mut output_bool,), (&packed_input_u1, &packed_input_i2, &packed_input_u3, &packed_input_u4, &packed_input_f4e2m1, &packed_input_i5, &packed_input_f6e3m2, &packed_input_i7), (&mut packed_output_u1, &mut packed_output_i2, &mut packed_output_u3, &mut packed_output_u4, &mut packed_output_f4e2m1, &mut packed_output_i5, &mut packed_output_f6e3m2, &mut packed_output_i7)))?;
    Ok(vec![output_f32.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_f16.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_bf16.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_f64.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_tf32.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_f8e4m3fn.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_f8e5m2.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_f8e8m0fnu.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_i8.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_i16.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_i32.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_i64.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_u8.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_u16.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_u32.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_u64.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), output_bool.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect(), packed_output_u1.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect(), packed_output_i2.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect(), packed_output_u3.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect(), packed_output_u4.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect(), packed_output_f4e2m1.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect(), packed_output_i5.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect(), packed_output_f6e3m2.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect(), packed_output_i7.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect()])
}
