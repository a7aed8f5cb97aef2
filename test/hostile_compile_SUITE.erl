%% Modules that attack whoever compiles, loads or instantiates them: nested, huge, maximal, cut and
%% random. Each is refused with its class and kind, or works, in a time that its size bounds.
-module(hostile_compile_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasm_bytes, [one/1, one/2, times/2, leb/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

suite() -> wasmtime_test:suite().

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), preview1:warm_up(), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

init_per_testcase(_, Config) -> [{alive, preview1:alive()} | Config].

end_per_testcase(_, Config) -> preview1:left_behind(proplists:get_value(alive, Config)).

-define(END, 16#0B).
-define(FAST, #{opt_level => none}).

%% The largest that works, and one more, with what it answers.
boundary(Make, Max, Kind) -> boundary(Make, Max, Kind, #{}).

boundary(Make, Max, Kind, Opts) ->
    {ok, Mod} = wasmtime:compile(Make(Max), ?FAST),
    {ok, Inst} = wasmtime_test:instantiate(Mod, Opts),
    ok = wasmtime:destroy(Inst),
    refused(Make(Max + 1), Kind).

refused(Wasm, Kind) ->
    ?assertMatch({Kind, {error, #{class := compile, kind := Kind}}}, {Kind, wasmtime:compile(Wasm, ?FAST)}).

%% ---- one function ---------------------------------------------------------------------------

%% Blocks and conditions as deep as bytes go: the time is that of their number.
t_deep_nesting(_) ->
    Depth = wasmtime_test:rounds(10_000, 100_000, 1_000_000),
    [{ok, _} = wasmtime:compile(one([times(Depth, Open), times(Depth, <<?END>>)]), ?FAST)
     || Open <- [<<2, 16#40>>, <<16#20, 0, 4, 16#40>>]],
    Stack = one([times(Depth, <<16#20, 0>>), times(Depth - 1, <<16#6A>>), 16#1A]),
    ?assertMatch({ok, _}, wasmtime:compile(Stack, ?FAST)),
    ok.

%% Loops inside one another are limited: thirty kilobytes of them would take half a minute.
t_nested_loops(_) ->
    Nested = fun(Open) -> fun(N) -> one([times(N, Open), times(N, <<?END>>)]) end end,
    boundary(Nested(<<3, 16#40>>), 256, unsupported),
    refused((Nested(<<3, 16#40>>))(100_000), unsupported),
    Mixed = fun(N) -> one([times(N, <<2, 16#40, 3, 16#40>>), times(2 * N, <<?END>>)]) end,
    boundary(Mixed, 256, unsupported),
    %% Those beside one another are not.
    {ok, _} = wasmtime:compile(one(times(1000, <<3, 16#40, ?END>>)), ?FAST),
    ok.

%% Tables of branches have their limit, and very many of them, each large, are only long.
t_branch_tables(_) ->
    Table = fun(N) -> [<<2, 16#40, 16#20, 0, 16#0E>>, leb(N), times(N + 1, <<0>>), ?END] end,
    boundary(fun(N) -> one(Table(N)) end, 65_520, unsupported),
    refused(one([<<2, 16#40, 16#20, 0, 16#0E>>, leb(16#FFFFFFFF), 0, ?END]), invalid),
    {ok, _} = wasmtime:compile(one(times(100, Table(200))), ?FAST),
    ok.

%% Locals, parameters and results to their limits.
t_locals_and_signatures(_) ->
    [boundary(fun(N) -> one([[leb(N), Type]], []) end, 49_999, invalid) || Type <- [16#7F, 16#7B]],
    refused(one([[leb(16#FFFFFFFF), 16#7F], [leb(16#FFFFFFFF), 16#7F]], []), invalid),
    boundary(fun(N) -> wasm_bytes:signature(N, 0) end, 1000, invalid),
    boundary(fun(N) -> wasm_bytes:signature(0, N) end, 1000, invalid),
    ?assertMatch({ok, _}, wasmtime:compile(wasm_bytes:signature(1000, 1000), ?FAST)),
    ok.

%% The longest function that there may be, and a byte more.
t_longest_function(_) ->
    Ops = wasmtime_test:rounds(20_000, 200_000, 1_000_000),
    {ok, _} = wasmtime:compile(one([<<16#20, 0>>, times(Ops, <<16#41, 1, 16#6A>>), 16#1A]), ?FAST),
    refused(one(times(7_654_321, <<1>>)), invalid).

%% ---- many of everything ---------------------------------------------------------------------

%% As many as a module may have of each, and one more.
t_maximal_modules(_) ->
    Unlimited = #{max_tables => unlimited},
    boundary(fun wasm_bytes:tables/1, 100, invalid, Unlimited),
    boundary(fun wasm_bytes:segments/1, 100_000, invalid),
    boundary(fun wasm_bytes:elements/1, 100_000, invalid),
    refused(wasm_bytes:functions(1_000_001), invalid),
    refused(wasm_bytes:types(1_000_001), invalid),
    refused(wasm_bytes:globals(1_000_001), invalid),
    Many = wasmtime_test:rounds(2_000, 20_000, 1_000_000),
    [begin
         {ok, Mod} = wasmtime:compile(Make(Many), ?FAST),
         {ok, Inst} = wasmtime_test:instantiate(Mod),
         ok = wasmtime:destroy(Inst)
     end || Make <- [fun wasm_bytes:functions/1, fun wasm_bytes:types/1, fun wasm_bytes:globals/1]].

%% Constants that allocate, and whatever else an instantiation must compute or copy, send it to a dirty
%% scheduler when it is much; when it is little they do not.
t_heavy_instantiation(_) ->
    Type = "(type $a (array (mut i8))) (type $s (struct (field i64)))",
    Times = fun(N, Text) -> lists:duplicate(N, Text) end,
    Data = fun(Bytes) -> ["\"", Times(Bytes, "x"), "\""] end,
    Func = "(func $f)",
    [begin
         {ok, Mod} = wasmtime:compile({wat, ["(module ", Type, Func, Text, ")"]}, #{proposals => #{threads => true}}),
         ?assertEqual({Dirty, Text}, {is_dirty(Mod), Text}),
         {ok, Inst} = wasmtime_test:instantiate(Mod),
         ok = wasmtime:destroy(Inst)
     end || {Dirty, Text} <-
                [{true, "(global (ref $a) (array.new_default $a (i32.const 100000000)))"},
                 {true, "(global (ref $a) (array.new $a (i32.const 1) (i32.const 10000000)))"},
                 {true, "(global (ref $a) (array.new_default $a (i32.mul (i32.const 10000) (i32.const 1000))))"},
                 {true, "(table 1 (ref $a) (array.new_default $a (i32.const 10000000)))"},
                 {true, "(elem (ref $a) (array.new_default $a (i32.const 10000000)))"},
                 {true, "(table 1 (ref null $a)) (elem (i32.const 0) (ref $a) (array.new_default $a (i32.const 10000000)))"},
                 {true, Times(5000, "(global (ref $s) (struct.new $s (i64.const 1)))")},
                 {true, ["(elem func ", Times(20_000, "$f "), ")"]},
                 {true, ["(global $o i32 (i32.const 0)) (table 20000 funcref) (elem (global.get $o) ", Times(20_000, "$f "), ")"]},
                 {true, ["(global $o i32 (i32.const 0)) (memory 20) (data (global.get $o) ", Data(1_000_000), ")"]},
                 {true, ["(global $o i32 (i32.const 0)) (memory 20) (data (global.get $o) \"\")"
                         " (data (i32.const 0) ", Data(1_000_000), ")"]},
                 {true, ["(memory 20 20 shared) (data (i32.const 0) ", Data(1_000_000), ")"]},
                 {false, ["(memory 20) (data (i32.const 0) ", Data(1_000_000), ")"]},
                 {false, ["(memory 20) (data ", Data(1_000_000), ")"]},
                 {false, "(global $o i32 (i32.const 0)) (memory 20) (data (global.get $o) \"x\")"},
                 {false, "(global (ref $a) (array.new_default $a (i32.const 1000)))"},
                 {false, Times(100, "(global (ref $s) (struct.new $s (i64.const 1)))")},
                 {false, ["(elem func ", Times(1000, "$f "), ")"]},
                 {false, ["(table 20000 funcref) (elem (i32.const 0) func ", Times(20_000, "$f "), ")"]}]].

%% True when a module is not instantiated on a normal scheduler.
is_dirty(Mod) ->
    {ok, Opts, _} = wasmtime_options:instance(instantiate, #{}, module),
    wasmtime_nif:instance_new(Mod, Opts, make_ref()) =:= dirty.

%% Names by the ten thousand are listed, and all are looked for.
t_many_names(_) ->
    Many = wasmtime_test:rounds(10_000, 50_000, 200_000),
    {ok, Exports} = wasmtime:compile(wasm_bytes:exports(Many), ?FAST),
    ?assertEqual(Many, length(lists:usort(wasmtime:exports(Exports)))),
    {ok, Imports} = wasmtime:compile(wasm_bytes:imports(Many), ?FAST),
    Names = wasmtime:imports(Imports),
    ?assertEqual(Many, length(lists:usort(Names))),
    ?assertMatch(?WASMTIME_ERROR(link, unknown_import), wasmtime_test:instantiate(Imports)),
    Funs = maps:from_list([{{M, N}, fun(_, []) -> {ok, []} end} || {M, N, func} <- Names]),
    {ok, Inst} = wasmtime_test:instantiate(Imports, #{imports => Funs}),
    ok = wasmtime:destroy(Inst).

%% A memory and a table of the largest size that can be said: a limit, not an allocation.
t_largest_memory_and_table(_) ->
    New = fun(Text, Opts) ->
        {ok, Mod} = wasmtime:compile({wat, Text}),
        case wasmtime_test:instantiate(Mod, Opts) of
            {ok, Inst} -> wasmtime:destroy(Inst);
            Error -> Error
        end
    end,
    ?assertMatch(?WASMTIME_ERROR(limit, memory_limit), New("(module (memory 65536))", #{})),
    ?assertEqual(ok, New("(module (memory 65536))", #{memory_limit => unlimited})),
    ?assertMatch(?WASMTIME_ERROR(limit, table_limit), New("(module (table 10000001 funcref))", #{})),
    ?assertEqual(ok, New("(module (table 10000000 funcref))", #{})),
    refused({wat, "(module (memory 65537))"}, invalid).

%% ---- broken bytes ---------------------------------------------------------------------------

%% Every prefix of a module, and lengths that lie, are malformed or invalid; none is taken for whole.
t_cut_and_lying(_) ->
    Whole = wasmtime_test:wasm(memory),
    [?assertMatch({Size, {error, #{class := compile}}},
                  {Size, wasmtime:compile(binary:part(Whole, 0, Size), ?FAST)})
     || Size <- lists:seq(0, byte_size(Whole) - 1), not is_whole(binary:part(Whole, 0, Size))],
    [?assertMatch({Bytes, {error, #{class := compile}}}, {Bytes, wasmtime:compile(Bytes, ?FAST)})
     || Section <- lists:seq(0, 14), Lie <- [16#FFFFFFFF, 16#7FFFFFFF, 1 bsl 20],
        Bytes <- [wasm_bytes:module([Section, leb(Lie)]),
                  wasm_bytes:module([wasm_bytes:section(Section, leb(Lie))]),
                  wasm_bytes:module([Section, <<255, 255, 255, 255, 255, 255>>])]].

%% A cut between two sections leaves a smaller module.
is_whole(Part) -> wasmtime:validate(Part) =:= ok.

%% Bytes changed at random: an error of class compile, or a module that can be made and ended.
t_random_bytes(_) ->
    Seeds = [wasmtime_test:wasm(Name) || Name <- [hostile, memory, traps, host, many]],
    [begin
         Wasm = damaged(lists:nth(rand:uniform(length(Seeds)), Seeds), rand:uniform(4)),
         case wasmtime:compile(Wasm, ?FAST) of
             {ok, Mod} -> made(Mod, Wasm);
             {error, #{class := Class, kind := Kind}} ->
                 ?assert(Class =:= compile andalso lists:member(Kind, [malformed, invalid, unsupported]),
                         {Class, Kind, Wasm})
         end
     end || _ <- lists:seq(1, wasmtime_test:rounds(300, 2000, 200_000))].

damaged(Wasm, 0) -> Wasm;
damaged(Wasm, N) ->
    At = rand:uniform(byte_size(Wasm) - 8) + 7,
    <<Before:At/binary, _, After/binary>> = Wasm,
    damaged(<<Before/binary, (rand:uniform(256) - 1), After/binary>>, N - 1).

made(Mod, Wasm) ->
    %% A start section that came about may run for ever.
    {Pid, Monitor} = wasmtime_test:caller(fun() -> wasmtime_test:instantiate(Mod) end),
    receive
        {Pid, {ok, Inst}} -> ok = wasmtime:destroy(Inst);
        {Pid, {error, #{class := Class}}} ->
            ?assert(lists:member(Class, [link, limit, trap, instantiate]), {Class, Wasm})
    after 1000 -> exit(Pid, kill)
    end,
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%% ---- text -----------------------------------------------------------------------------------

%% Text that is nested, opened and never closed, or long without an end.
t_text(_) ->
    Deep = wasmtime_test:rounds(100_000, 1_000_000, 10_000_000),
    [?assertMatch({Start, {error, #{class := compile, kind := malformed}}},
                  {Start, wasmtime:wat2wasm([Start, times(Deep, Repeat)])})
     || {Start, Repeat} <- [{"", "("}, {"(module ", "("}, {"", "(;"}, {"(module (data \"", "a"},
                            {"(module (func ", "(block "}, {"(module ", "(module "}, {"", " "},
                            {"(module (func (drop ", "(i32.add "}, {"(module (type ", "(func (param "}]],
    [?assertMatch({ok, _}, wasmtime:wat2wasm([Start, times(Deep div 10, Open),
                                              times(Deep div 10, Close), End]))
     || {Start, Open, Close, End} <- [{"(module (func ", "(block ", ")", "))"},
                                      {"(module ", "(;", ";)", ")"},
                                      {"(module (func ", "(if (i32.const 0) (then ", "))", "))"}]].
