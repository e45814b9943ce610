entry @attention(%arg0: tile<ptr<bf16>>, %arg1: tile<i32>, %arg2: tile<i32>, %arg3: tile<i32>, %arg4: tile<i32>, %arg5: tile<i32>, %arg6: tile<i32>, %arg7: tile<i32>, %arg8: tile<i32>, %arg9: tile<ptr<bf16>>, %arg10: tile<i32>, %arg11: tile<i32>, %arg12: tile<i32>, %arg13: tile<i32>, %arg14: tile<i32>, %arg15: tile<i32>, %arg16: tile<i32>, %arg17: tile<i32>, %arg18: tile<ptr<bf16>>, %arg19: tile<i32>, %arg20: tile<i32>, %arg21: tile<i32>, %arg22: tile<i32>, %arg23: tile<i32>, %arg24: tile<i32>, %arg25: tile<i32>, %arg26: tile<i32>, %arg27: tile<ptr<bf16>>, %arg28: tile<i32>, %arg29: tile<i32>, %arg30: tile<i32>, %arg31: tile<i32>, %arg32: tile<i32>, %arg33: tile<i32>, %arg34: tile<i32>, %arg35: tile<i32>, %arg36: tile<f32>) optimization_hints=<default = {occupancy = 1}> {
  %0 = make_token : token
  %assume = assume div_by<16>, %arg0 : tile<ptr<bf16>>
  %assume_0 = assume div_by<16>, %arg1 : tile<i32>
  %assume_1 = assume div_by<16>, %arg2 : tile<i32>
  %assume_2 = assume div_by<16>, %arg3 : tile<i32>
  %assume_3 = assume div_by<16>, %arg4 : tile<i32>
  %assume_4 = assume div_by<16>, %arg5 : tile<i32>
  %assume_5 = assume div_by<16>, %arg6 : tile<i32>
  %assume_6 = assume div_by<16>, %arg7 : tile<i32>
  %assume_7 = assume div_by<16>, %arg9 : tile<ptr<bf16>>
  %assume_8 = assume div_by<16>, %arg10 : tile<i32>
  %assume_9 = assume div_by<16>, %arg11 : tile<i32>
  %assume_10 = assume div_by<16>, %arg12 : tile<i32>
  %assume_11 = assume div_by<16>, %arg13 : tile<i32>
  %assume_12 = assume div_by<16>, %arg14 : tile<i32>
  %assume_13 = assume div_by<16>, %arg15 : tile<i32>
  %assume_14 = assume div_by<16>, %arg16 : tile<i32>
  %assume_15 = assume div_by<16>, %arg18 : tile<ptr<bf16>>
  %assume_16 = assume div_by<16>, %arg19 : tile<i32>
  %assume_17 = assume div_by<16>, %arg20 : tile<i32>
  %assume_18 = assume div_by<16>, %arg21 : tile<i32>
  %assume_19 = assume div_by<16>, %arg22 : tile<i32>
  %assume_20 = assume div_by<16>, %arg23 : tile<i32>
  %assume_21 = assume div_by<16>, %arg24 : tile<i32>
  %assume_22 = assume div_by<16>, %arg25 : tile<i32>
  %assume_23 = assume div_by<16>, %arg27 : tile<ptr<bf16>>
  %assume_24 = assume div_by<16>, %arg28 : tile<i32>
  %assume_25 = assume div_by<16>, %arg29 : tile<i32>
  %assume_26 = assume div_by<16>, %arg30 : tile<i32>
  %assume_27 = assume div_by<16>, %arg31 : tile<i32>
  %assume_28 = assume div_by<16>, %arg32 : tile<i32>
  %assume_29 = assume div_by<16>, %arg33 : tile<i32>
  %assume_30 = assume div_by<16>, %arg34 : tile<i32>
  %cst_1_i32 = constant <i32: 1> : tile<i32>
  %cst_1_i32_31 = constant <i32: 1> : tile<i32>
  %cst_1_i32_32 = constant <i32: 1> : tile<i32>
  %cst_1_i32_33 = constant <i32: 1> : tile<i32>
  %assume_assume = assume bounded<0, ?>, %assume_0 : tile<i32>
  %assume_assume_assume = assume div_by<16>, %assume_assume : tile<i32>
  %assume_assume_34 = assume bounded<0, ?>, %assume_1 : tile<i32>
  %assume_assume_assume_35 = assume div_by<16>, %assume_assume_34 : tile<i32>
  %assume_assume_36 = assume bounded<0, ?>, %assume_2 : tile<i32>
  %assume_assume_assume_37 = assume div_by<16>, %assume_assume_36 : tile<i32>
  %assume_assume_38 = assume bounded<0, ?>, %assume_3 : tile<i32>
  %assume_assume_assume_39 = assume div_by<16>, %assume_assume_38 : tile<i32>
  %assume_assume_40 = assume bounded<0, ?>, %assume_4 : tile<i32>
  %assume_assume_assume_41 = assume div_by<16>, %assume_assume_40 : tile<i32>
  %assume_assume_42 = assume bounded<0, ?>, %assume_5 : tile<i32>
  %assume_assume_assume_43 = assume div_by<16>, %assume_assume_42 : tile<i32>
  %assume_assume_44 = assume bounded<0, ?>, %assume_6 : tile<i32>
  %assume_assume_assume_45 = assume div_by<16>, %assume_assume_44 : tile<i32>
  %tview = make_tensor_view %assume, shape = [%assume_assume_assume, %assume_assume_assume_35, %assume_assume_assume_37, %assume_assume_assume_39], strides = [%assume_assume_assume_41, %assume_assume_assume_43, %assume_assume_assume_45, 1] : tile<i32> -> tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>
  %assume_assume_46 = assume bounded<0, ?>, %assume_8 : tile<i32>
  %assume_assume_assume_47 = assume div_by<16>, %assume_assume_46 : tile<i32>
  %assume_assume_48 = assume bounded<0, ?>, %assume_9 : tile<i32>
  %assume_assume_assume_49 = assume div_by<16>, %assume_assume_48 : tile<i32>
  %assume_assume_50 = assume bounded<0, ?>, %assume_10 : tile<i32>
  %assume_assume_assume_51 = assume div_by<16>, %assume_assume_50 : tile<i32>
  %assume_assume_52 = assume bounded<0, ?>, %assume_11 : tile<i32>
  %assume_assume_assume_53 = assume div_by<16>, %assume_assume_52 : tile<i32>
  %assume_assume_54 = assume bounded<0, ?>, %assume_12 : tile<i32>
  %assume_assume_assume_55 = assume div_by<16>, %assume_assume_54 : tile<i32>
  %assume_assume_56 = assume bounded<0, ?>, %assume_13 : tile<i32>
  %assume_assume_assume_57 = assume div_by<16>, %assume_assume_56 : tile<i32>
  %assume_assume_58 = assume bounded<0, ?>, %assume_14 : tile<i32>
  %assume_assume_assume_59 = assume div_by<16>, %assume_assume_58 : tile<i32>
  %tview_60 = make_tensor_view %assume_7, shape = [%assume_assume_assume_47, %assume_assume_assume_49, %assume_assume_assume_51, %assume_assume_assume_53], strides = [%assume_assume_assume_55, %assume_assume_assume_57, %assume_assume_assume_59, 1] : tile<i32> -> tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>
  %assume_assume_61 = assume bounded<0, ?>, %assume_16 : tile<i32>
  %assume_assume_assume_62 = assume div_by<16>, %assume_assume_61 : tile<i32>
  %assume_assume_63 = assume bounded<0, ?>, %assume_17 : tile<i32>
  %assume_assume_assume_64 = assume div_by<16>, %assume_assume_63 : tile<i32>
  %assume_assume_65 = assume bounded<0, ?>, %assume_18 : tile<i32>
  %assume_assume_assume_66 = assume div_by<16>, %assume_assume_65 : tile<i32>
  %assume_assume_67 = assume bounded<0, ?>, %assume_19 : tile<i32>
  %assume_assume_assume_68 = assume div_by<16>, %assume_assume_67 : tile<i32>
  %assume_assume_69 = assume bounded<0, ?>, %assume_20 : tile<i32>
  %assume_assume_assume_70 = assume div_by<16>, %assume_assume_69 : tile<i32>
  %assume_assume_71 = assume bounded<0, ?>, %assume_21 : tile<i32>
  %assume_assume_assume_72 = assume div_by<16>, %assume_assume_71 : tile<i32>
  %assume_assume_73 = assume bounded<0, ?>, %assume_22 : tile<i32>
  %assume_assume_assume_74 = assume div_by<16>, %assume_assume_73 : tile<i32>
  %tview_75 = make_tensor_view %assume_15, shape = [%assume_assume_assume_62, %assume_assume_assume_64, %assume_assume_assume_66, %assume_assume_assume_68], strides = [%assume_assume_assume_70, %assume_assume_assume_72, %assume_assume_assume_74, 1] : tile<i32> -> tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>
  %assume_assume_76 = assume bounded<0, ?>, %assume_24 : tile<i32>
  %assume_assume_assume_77 = assume div_by<16>, %assume_assume_76 : tile<i32>
  %assume_assume_78 = assume bounded<0, ?>, %assume_25 : tile<i32>
  %assume_assume_assume_79 = assume div_by<16>, %assume_assume_78 : tile<i32>
  %assume_assume_80 = assume bounded<0, ?>, %assume_26 : tile<i32>
  %assume_assume_assume_81 = assume div_by<16>, %assume_assume_80 : tile<i32>
  %assume_assume_82 = assume bounded<0, ?>, %assume_27 : tile<i32>
  %assume_assume_assume_83 = assume div_by<16>, %assume_assume_82 : tile<i32>
  %assume_assume_84 = assume bounded<0, ?>, %assume_28 : tile<i32>
  %assume_assume_assume_85 = assume div_by<16>, %assume_assume_84 : tile<i32>
  %assume_assume_86 = assume bounded<0, ?>, %assume_29 : tile<i32>
  %assume_assume_assume_87 = assume div_by<16>, %assume_assume_86 : tile<i32>
  %assume_assume_88 = assume bounded<0, ?>, %assume_30 : tile<i32>
  %assume_assume_assume_89 = assume div_by<16>, %assume_assume_88 : tile<i32>
  %tview_90 = make_tensor_view %assume_23, shape = [%assume_assume_assume_77, %assume_assume_assume_79, %assume_assume_assume_81, %assume_assume_assume_83], strides = [%assume_assume_assume_85, %assume_assume_assume_87, %assume_assume_assume_89, 1] : tile<i32> -> tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>
  %cst_32_i32 = constant <i32: 32> : tile<i32>
  %cst_128_i32 = constant <i32: 128> : tile<i32>
  %blockId_x, %blockId_y, %blockId_z = get_tile_block_id : tile<i32>
  %blockId_x_91, %blockId_y_92, %blockId_z_93 = get_tile_block_id : tile<i32>
  %1 = divi %blockId_y_92, %cst_32_i32 signed rounding<negative_inf> : tile<i32>
  %blockId_x_94, %blockId_y_95, %blockId_z_96 = get_tile_block_id : tile<i32>
  %2 = remi %blockId_y_95, %cst_32_i32 signed : tile<i32>
  %cst_0_i32 = constant <i32: 0> : tile<i32>
  %3 = cmpi less_than %2, %cst_0_i32, signed : tile<i32> -> tile<i1>
  %false = constant <i1: false> : tile<i1>
  %4 = xori %3, %false : tile<i1>
  %5 = cmpi not_equal %2, %cst_0_i32, signed : tile<i32> -> tile<i1>
  %6 = andi %4, %5 : tile<i1>
  %7 = addi %2, %cst_32_i32 : tile<i32>
  %8 = select %6, %7, %2 : tile<i1>, tile<i32>
  %cst_f32 = constant <f32: 1.44269502> : tile<f32>
  %9 = mulf %arg36, %cst_f32  : tile<f32>
  %cst_f32_97 = constant <f32: 0xFF800000> : tile<128x1xf32>
  %cst_0_f32 = constant <f32: 0.000000e+00> : tile<128x1xf32>
  %cst_0_f32_98 = constant <f32: 0.000000e+00> : tile<128x128xf32>
  %cst_0_i32_99 = constant <i32: 0> : tile<i32>
  %pview = make_partition_view %tview : partition_view<tile=(1x1x128x128), tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>>
  %tile, %result_token = load_view_tko weak %pview[%1, %8, %blockId_x, %cst_0_i32_99] token = %0 : partition_view<tile=(1x1x128x128), tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>>, tile<i32> -> tile<1x1x128x128xbf16>, token
  %reshape = reshape %tile : tile<1x1x128x128xbf16> -> tile<128x128xbf16>
  %10 = divi %assume_assume_assume_51, %cst_128_i32 signed rounding<positive_inf> : tile<i32>
  %cst_0_i32_100 = constant <i32: 0> : tile<i32>
  %cst_1_i32_101 = constant <i32: 1> : tile<i32>
  %cst_0_i32_102 = constant <i32: 0> : tile<i32>
  %pview_103 = make_partition_view %tview_60 : partition_view<tile=(1x1x128x128), tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>, dim_map=[0, 1, 3, 2]>
  %cst_0_f32_104 = constant <f32: 0.000000e+00> : tile<128x128xf32>
  %reshape_105 = reshape %9 : tile<f32> -> tile<1x1xf32>
  %bcast = broadcast %reshape_105 : tile<1x1xf32> -> tile<128x1xf32>
  %reshape_106 = reshape %9 : tile<f32> -> tile<1x1xf32>
  %bcast_107 = broadcast %reshape_106 : tile<1x1xf32> -> tile<128x128xf32>
  %cst_0_i32_108 = constant <i32: 0> : tile<i32>
  %pview_109 = make_partition_view %tview_75 : partition_view<tile=(1x1x128x128), tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>>
  %for:3 = for %loopIdx in (%cst_0_i32_100 to %10, step %cst_1_i32_101) : tile<i32> iter_values(%iterArg0 = %cst_0_f32_98, %iterArg1 = %cst_f32_97, %iterArg2 = %cst_0_f32) -> (tile<128x128xf32>, tile<128x1xf32>, tile<128x1xf32>) {
    %tile_114, %result_token_115 = load_view_tko weak %pview_103[%1, %8, %cst_0_i32_102, %loopIdx] token = %0 optimization_hints = <default = {latency = 2}> : partition_view<tile=(1x1x128x128), tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>, dim_map=[0, 1, 3, 2]>, tile<i32> -> tile<1x1x128x128xbf16>, token
    %reshape_116 = reshape %tile_114 : tile<1x1x128x128xbf16> -> tile<128x128xbf16>
    %14 = mmaf %reshape, %reshape_116, %cst_0_f32_104 : tile<128x128xbf16>, tile<128x128xbf16>, tile<128x128xf32>
    %reduce = reduce %14 dim=1 identities=[0xFF800000 : f32] : tile<128x128xf32> -> tile<128xf32> 
    (%reduce_lhs: tile<f32>, %reduce_rhs: tile<f32>) {
      %26 = maxf %reduce_lhs, %reduce_rhs : tile<f32>
      yield %26 : tile<f32>
    }
    %reshape_117 = reshape %reduce : tile<128xf32> -> tile<128x1xf32>
    %15 = mulf %reshape_117, %bcast  : tile<128x1xf32>
    %16 = maxf %iterArg1, %15 : tile<128x1xf32>
    %bcast_118 = broadcast %16 : tile<128x1xf32> -> tile<128x128xf32>
    %17 = negf %bcast_118 : tile<128x128xf32>
    %18 = fma %14, %bcast_107, %17  : tile<128x128xf32>
    %19 = exp2 %18 flush_to_zero : tile<128x128xf32>
    %20 = subf %iterArg1, %16  : tile<128x1xf32>
    %21 = exp2 %20 flush_to_zero : tile<128x1xf32>
    %reduce_119 = reduce %19 dim=1 identities=[0.000000e+00 : f32] : tile<128x128xf32> -> tile<128xf32> 
    (%reduce_lhs: tile<f32>, %reduce_rhs: tile<f32>) {
      %26 = addf %reduce_lhs, %reduce_rhs  : tile<f32>
      yield %26 : tile<f32>
    }
    %reshape_120 = reshape %reduce_119 : tile<128xf32> -> tile<128x1xf32>
    %22 = fma %iterArg2, %21, %reshape_120  : tile<128x1xf32>
    %bcast_121 = broadcast %21 : tile<128x1xf32> -> tile<128x128xf32>
    %23 = mulf %iterArg0, %bcast_121  : tile<128x128xf32>
    %tile_122, %result_token_123 = load_view_tko weak %pview_109[%1, %8, %loopIdx, %cst_0_i32_108] token = %0 optimization_hints = <default = {latency = 4}> : partition_view<tile=(1x1x128x128), tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>>, tile<i32> -> tile<1x1x128x128xbf16>, token
    %reshape_124 = reshape %tile_122 : tile<1x1x128x128xbf16> -> tile<128x128xbf16>
    %24 = ftof %19  : tile<128x128xf32> -> tile<128x128xbf16>
    %25 = mmaf %24, %reshape_124, %23 : tile<128x128xbf16>, tile<128x128xbf16>, tile<128x128xf32>
    continue %25, %16, %22 : tile<128x128xf32>, tile<128x1xf32>, tile<128x1xf32>
  }
  %bcast_110 = broadcast %for#2 : tile<128x1xf32> -> tile<128x128xf32>
  %11 = divf %for#0, %bcast_110 rounding<approx> flush_to_zero : tile<128x128xf32>
  %cst_0_i32_111 = constant <i32: 0> : tile<i32>
  %reshape_112 = reshape %11 : tile<128x128xf32> -> tile<1x1x128x128xf32>
  %12 = ftof %reshape_112  : tile<1x1x128x128xf32> -> tile<1x1x128x128xbf16>
  %pview_113 = make_partition_view %tview_90 : partition_view<tile=(1x1x128x128), tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>>
  %13 = store_view_tko weak %12, %pview_113[%1, %8, %blockId_x, %cst_0_i32_111] token = %0 : tile<1x1x128x128xbf16>, partition_view<tile=(1x1x128x128), tensor_view<?x?x?x?xbf16, strides=[?,?,?,1]>>, tile<i32> -> token
  return
}
