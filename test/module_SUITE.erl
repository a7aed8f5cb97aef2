%% Modules: compiling, validating, and looking into them.
-module(module_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [source/1, wasm/1, mod/1, mod/2]).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% Text and bytes of one module compile to the same exports.
t_text_and_bytes(_) ->
    Exports = [{<<"add">>, func}],
    ?assertEqual(Exports, wasmtime:exports(mod(source(add), #{}))),
    ?assertEqual(Exports, wasmtime:exports(mod(wasm(add), #{}))).

%% The text may be any iodata.
t_text_is_iodata(_) ->
    ?assertMatch({ok, _}, wasmtime:compile({wat, ["(mod", [<<"ule">>, $)]]})).

%% Text as plain bytes is not WebAssembly.
t_text_is_not_bytes(_) ->
    ?assertMatch(?WASMTIME_ERROR(compile, malformed), wasmtime:compile(<<"(module)">>)),
    ?assertMatch(?WASMTIME_ERROR(compile, malformed), wasmtime:compile(<<>>)).

%% A truncated module is malformed at every length, and never crashes.
t_truncated(_) ->
    Wasm = wasm(memory),
    [?assertMatch({N, {error, #{class := compile}}},
                  {N, wasmtime:compile(binary:part(Wasm, 0, N))})
     || N <- lists:seq(0, 7) ++ lists:seq(9, byte_size(Wasm) - 1),
        not is_valid(binary:part(Wasm, 0, N))].

%% A cut between two sections may leave a module that is valid.
is_valid(Wasm) -> wasmtime:validate(Wasm) =:= ok.

%% Well-formed but wrong: the message says what.
t_invalid(_) ->
    {error, #{class := compile, kind := invalid, message := Message}} =
        wasmtime:compile({wat, "(module (func (result i32)))"}),
    ?assertMatch({_, _}, binary:match(Message, <<"type mismatch">>)).

%% Bad text says where.
t_bad_text(_) ->
    {error, #{class := compile, kind := malformed, message := Message}} =
        wasmtime:wat2wasm("(module\n  (funk))"),
    ?assertMatch({_, _}, binary:match(Message, <<"2:">>)),
    ?assertMatch(?WASMTIME_ERROR(compile, malformed), wasmtime:wat2wasm(<<"(module">>)),
    ?assertMatch(?WASMTIME_ERROR(compile, malformed), wasmtime:wat2wasm(<<255>>)).

%% Text becomes the binary format.
t_wat2wasm(_) ->
    ?assertMatch(<<0, "asm", 1:32/little>>, wasm_of("(module)")).

%% Any character may stand in a name or a comment, also one that changes the direction of the text.
t_all_characters(_) ->
    Name = <<16#202E/utf8, 16#2066/utf8, "é"/utf8, 16#1F600/utf8>>,
    Text = [<<";; ">>, Name, <<"\n(module (func (export \"">>, Name, <<"\")))">>],
    {ok, Mod} = wasmtime:compile({wat, Text}),
    ?assertEqual([{Name, func}], wasmtime:exports(Mod)).

wasm_of(Text) ->
    {ok, Wasm} = wasmtime:wat2wasm(Text),
    Wasm.

%% Validation accepts what compiles and refuses what does not, for the same reasons.
t_validate(_) ->
    ?assertEqual(ok, wasmtime:validate(source(memory))),
    ?assertEqual(ok, wasmtime:validate(wasm(memory), #{})),
    ?assertMatch(?WASMTIME_ERROR(compile, invalid),
                 wasmtime:validate({wat, "(module (func (result i32)))"})),
    ?assertMatch(?WASMTIME_ERROR(compile, malformed), wasmtime:validate(<<"x">>)).

%% A proposal that is off makes its instructions invalid, and valid again when on.
t_proposals(_) ->
    Simd = {wat, "(module (func (result v128) (v128.const i64x2 0 0)))"},
    ?assertEqual(ok, wasmtime:validate(Simd)),
    ?assertMatch({error, #{class := compile}},
                 wasmtime:validate(Simd, #{proposals => #{simd => false}})),
    Memories = source(memories),
    ?assertEqual(ok, wasmtime:validate(Memories, #{proposals => #{multi_memory => true}})),
    ?assertMatch({error, #{class := compile}},
                 wasmtime:validate(Memories, #{proposals => #{multi_memory => false}})),
    ?assertMatch({error, #{class := compile}},
                 wasmtime:compile(Memories, #{proposals => #{multi_memory => false}})).

%% An encoding that only a proposal allows is malformed without it, also where validation takes it.
t_encoding_of_a_proposal(_) ->
    Minimum = <<16#82, 16#80, 16#80, 16#80, 16#80, 0>>,
    Wasm = <<0, "asm", 1:32/little, 5, 8, 1, 0, Minimum/binary>>,
    ?assertMatch({ok, _}, wasmtime:compile(Wasm, #{proposals => #{memory64 => true}})),
    ?assertMatch(?WASMTIME_ERROR(compile, malformed), wasmtime:compile(Wasm, #{proposals => #{memory64 => false}})).

%% Every proposal can be turned on and off by itself, or says which one is in the way.
t_every_proposal(_) ->
    [case wasmtime:compile({wat, "(module)"}, #{proposals => #{P => On}}) of
         {ok, _} -> ok;
         {error, #{class := compile, kind := badarg, key := _}} -> ok
     end || P <- [simd, relaxed_simd, relaxed_simd_deterministic, bulk_memory, multi_value,
                  multi_memory, memory64, tail_call, wide_arithmetic, custom_page_sizes, threads,
                  reference_types, function_references, gc, exceptions],
            On <- [true, false]].

%% Every level of optimization computes the same.
t_opt_levels(_) ->
    [begin
         Inst = wasmtime_test:inst(add, #{}, #{opt_level => Level}),
         ?assertEqual({ok, [3]}, wasmtime:call(Inst, <<"add">>, [1, 2])),
         ok = wasmtime:destroy(Inst)
     end || Level <- [none, speed, speed_and_size]].

%% Imports and exports come in the module's own order, with their kinds.
t_imports_and_exports(_) ->
    ?assertEqual([{<<"env">>, <<"one">>, func}, {<<"env">>, <<"swap">>, func},
                  {<<"env">>, <<"none">>, func}], wasmtime:imports(mod(host))),
    Kinds = mod({wat, "(module (import \"\" \"\" (memory 1)) (import \"a\" \"t\" (table 1 funcref))"
                      " (import \"a\" \"g\" (global i32)) (func (export \"f\"))"
                      " (table (export \"t\") 1 funcref) (memory (export \"m\") 1)"
                      " (global (export \"g\") i32 (i32.const 0)))"}, #{}),
    ?assertEqual([{<<>>, <<>>, memory}, {<<"a">>, <<"t">>, table}, {<<"a">>, <<"g">>, global}],
                 wasmtime:imports(Kinds)),
    ?assertEqual([{<<"f">>, func}, {<<"t">>, table}, {<<"m">>, memory}, {<<"g">>, global}],
                 wasmtime:exports(Kinds)),
    Tag = mod({wat, "(module (tag (export \"t\")))"}, #{proposals => #{exceptions => true}}),
    ?assertEqual([{<<"t">>, tag}], wasmtime:exports(Tag)).

%% A module knows the options it was compiled with, defaults included.
t_module_options(_) ->
    ?assertMatch(#{fuel := false, opt_level := speed, allocator := on_demand},
                 wasmtime:module_options(mod(add))),
    Options = wasmtime:module_options(
        mod(add, #{fuel => true, opt_level => none, proposals => #{simd => false}})),
    ?assertMatch(#{fuel := true, opt_level := none, proposals := #{simd := false}}, Options),
    Pooled = wasmtime:module_options(mod(add, wasmtime_test:pool(#{instances => 3}))),
    ?assertMatch(#{allocator := pooling,
                   pooling := #{instances := 3, tables := 3, memories := 3, core_instances := 3,
                                keep_resident := 0, verify := true}}, Pooled).

%% What a module reports compiles again.
t_module_options_round_trip(_) ->
    Options = wasmtime:module_options(mod(add, wasmtime_test:pool(#{}))),
    ?assertEqual(Options, wasmtime:module_options(mod(add, Options))).

t_module_kind(_) ->
    ?assertEqual(module, wasmtime:module_kind(mod(add))).

%% The build says what it can do.
t_features(_) ->
    Features = wasmtime:features(),
    ?assertEqual([compiler, components, pagemap_scan, wasi, wat], lists:sort(maps:keys(Features))),
    ?assert(lists:all(fun is_boolean/1, maps:values(Features))),
    ?assertMatch(#{compiler := true, wat := true, wasi := true}, Features).

t_version(_) ->
    ?assertMatch({match, _}, re:run(wasmtime:version(), "^[0-9]+\\.[0-9]+\\.[0-9]+")).

%% Each set of options is an engine; the thirty-third is refused, and there is room again when
%% modules are gone.
t_too_many_configurations(_) ->
    wasmtime_test:settled(),
    wasmtime_test:in_process(fun() ->
        Sets = [#{proposals => maps:from_list([{P, I band (1 bsl B) =/= 0}
                    || {P, B} <- [{multi_value, 0}, {multi_memory, 1}, {memory64, 2},
                                  {tail_call, 3}, {wide_arithmetic, 4}, {custom_page_sizes, 5}]])}
                || I <- lists:seq(0, 40)],
        Results = [wasmtime:compile({wat, "(module)"}, Set) || Set <- Sets],
        {Mods, Errors} = lists:partition(fun({Tag, _}) -> Tag =:= ok end, Results),
        ?assert(length(Mods) =< 32),
        ?assertMatch([_ | _], Errors),
        [?assertMatch(?WASMTIME_ERROR(compile, too_many_configurations), E) || E <- Errors]
    end),
    wasmtime_test:settled(),
    ?assertMatch({ok, _}, wasmtime:compile({wat, "(module)"}, #{opt_level => speed_and_size})).

%% Modules that the process let go of take no room, collected or not.
t_room_for_configurations(_) ->
    [?assertMatch({_, {ok, _}}, {N, wasmtime:compile({wat, "(module)"}, Opts)})
     || N <- lists:seq(1, 100),
        Opts <- [#{allocator => pooling, pooling => #{instances => N, max_memory => 65536}}]],
    wasmtime_test:settled().

%% What is easily mixed up is told apart: text for bytes.
t_text_for_bytes(_) ->
    [begin
         {error, #{class := compile, kind := malformed, message := Message}} = wasmtime:compile(Text),
         ?assertMatch({_, {_, _}}, {Message, binary:match(Message, <<"{wat, Text}">>)})
     end || Text <- [<<"(module)">>, <<" \n(module)">>, <<";; a module\n(module)">>]],
    {error, #{message := Other}} = wasmtime:compile(<<"module">>),
    ?assertEqual(nomatch, binary:match(Other, <<"wat">>)).

%% Messages repeat names, and are short all the same.
t_long_names(_) ->
    {ok, Mod} = wasmtime:compile({wat, "(module)"}),
    {ok, Inst} = wasmtime:instantiate(Mod),
    Name = binary:copy(<<"\x{e9}"/utf8>>, 500_000),
    {error, #{kind := unknown_export, message := Message}} = wasmtime:call(Inst, Name, []),
    ?assert(byte_size(Message) < 3000),
    ?assert(is_list(unicode:characters_to_list(Message))),
    ok = wasmtime:destroy(Inst).

%% A first argument of the wrong sort is an exception.
t_wrong_first_argument(_) ->
    [?assertError(badarg, F(Bad))
     || F <- [fun wasmtime:compile/1, fun wasmtime:validate/1, fun wasmtime:wat2wasm/1,
              fun wasmtime:imports/1, fun wasmtime:exports/1, fun wasmtime:module_options/1,
              fun wasmtime:module_kind/1, fun wasmtime:pool_info/1, fun wasmtime:serialize/1,
              fun wasmtime:instantiate/1, fun wasmtime:deserialize/1,
              fun wasmtime:deserialize_file/1],
        Bad <- [atom, 1, make_ref(), #{}, self(), {wat, 1}]].

%% Two processes compile at once without a mix-up.
t_concurrent_compilation(_) ->
    Texts = [io_lib:format("(module (func (export \"f\") (result i32) (i32.const ~w)))", [I])
             || I <- lists:seq(1, 20)],
    Callers = [{I, wasmtime_test:caller(fun() -> wasmtime_test:inst(mod({wat, T}, #{}), #{}) end)}
               || {I, T} <- lists:zip(lists:seq(1, 20), Texts)],
    [receive {Pid, Inst} -> ?assertEqual({ok, [I]}, wasmtime:call(Inst, <<"f">>, [])) end
     || {I, {Pid, _}} <- Callers].

%% A shared memory, defined or imported, needs `threads' to be turned on by name; other atomics do not.
t_shared_memory_by_name(_) ->
    [begin
         Refused = [wasmtime:compile({wat, Text}), wasmtime:compile({wat, Text}, #{proposals => #{gc => true}}),
                    wasmtime:validate(element(2, wasmtime:wat2wasm(Text)))],
         [?assertMatch({error, #{class := compile, kind := invalid, key := proposals}}, Error) || Error <- Refused],
         [?assertMatch({_, _}, binary:match(Message, <<"threads">>)) || {error, #{message := Message}} <- Refused],
         ?assertMatch({error, #{class := compile, kind := invalid}},
                      wasmtime:compile({wat, Text}, #{proposals => #{threads => false}})),
         ?assertMatch({ok, _}, wasmtime:compile({wat, Text}, #{proposals => #{threads => true}}))
     end || Text <- ["(module (memory 1 1 shared))", "(module (memory 1) (memory 0 2 shared))",
                     "(module (import \"l\" \"m\" (memory 1 1 shared)))"]],
    ?assertMatch({ok, _}, wasmtime:compile({wat, "(module (memory 1) (func (drop (i32.atomic.load (i32.const 0)))))"})).

%% A guest that waits on a shared memory could not be stopped; other atomics are fine.
t_atomic_wait(_) ->
    Text = fun(Op) ->
        {wat, ["(module (memory 1 1 shared) (func (export \"f\") (result i32) (", Op, ")))"]}
    end,
    Opts = #{proposals => #{threads => true}},
    Wait = "memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1)",
    ?assertMatch({error, #{class := compile, kind := unsupported}},
                 wasmtime:compile(Text(Wait), Opts)),
    {ok, Mod} = wasmtime:compile(Text("i32.atomic.load (i32.const 0)"), Opts),
    ?assertMatch({error, #{class := limit, kind := memory_limit}},
                 wasmtime:instantiate(Mod, #{memory_limit => 65535})),
    {ok, Inst} = wasmtime:instantiate(Mod),
    ?assertEqual({ok, [0]}, wasmtime:call(Inst, <<"f">>, [])),
    ok = wasmtime:destroy(Inst).
