%% A property of pre-initialization: whatever list of calls is the init, an instance of the snapshot
%% cannot be told from one that made these calls step by step.
-module(preinit_prop_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-import(proper_types, [list/1, oneof/1, frequency/1, range/2, boolean/0, binary/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(PAGE, 65536).

t_snapshot_is_the_state(_) ->
    Wasm = wasmtime_test:wasm(preinit_ops),
    Mod = wasmtime_test:mod(Wasm, #{}),
    Cases = wasmtime_test:rounds(100, 300, 5_000),
    Told = fun(Format, Args) -> ct:pal(Format, Args) end,
    ?assertEqual(true, proper:quickcheck(same(Wasm, Mod), [{numtests, Cases}, {max_size, 30},
                                                           {on_output, Told}, {max_shrinks, 200}])).


same(Wasm, Mod) ->
    proper:forall({list(operation()), list(operation()), boolean()}, fun({Init, Then, Pooled}) ->
        Original = wasmtime_test:inst(Mod, imports()),
        try check(Wasm, Original, Init, Then, Pooled)
        after wasmtime:destroy(Original)
        end
    end).

check(Wasm, Original, Init, Then, Pooled) ->
    case {steps(Original, Init), wasmtime_test:preinit(Wasm, imports(), Init)} of
        {ok, {ok, Snapshot}} ->
            Compile = case Pooled of
                true -> wasmtime_test:pool(#{instances => 2});
                false -> #{}
            end,
            Result = wasmtime_test:inst(wasmtime_test:mod(Snapshot, Compile), imports()),
            try is_same(Original, Result, Then)
            after wasmtime:destroy(Result)
            end;
        {{error, #{class := Class, kind := Kind}}, {error, #{class := Class, kind := Kind}}} ->
            true;
        Other ->
            io:format("init: ~0tp~n", [Other]),
            false
    end.

%% As preinit/3 does it: the first failure ends it.
steps(_, []) -> ok;
steps(Inst, [{Name, Args} | Rest]) ->
    case wasmtime:call(Inst, Name, Args) of
        {ok, _} -> steps(Inst, Rest);
        Error -> Error
    end.

is_same(A, B, Then) ->
    seen(A) =:= seen(B)
        andalso lists:all(fun({Name, Args}) -> told(A, Name, Args) =:= told(B, Name, Args) end, Then)
        andalso seen(A) =:= seen(B).

%% A result, or why there is none.
told(Inst, Name, Args) ->
    case wasmtime:call(Inst, Name, Args) of
        {ok, Values} -> Values;
        {error, #{class := Class, kind := Kind}} -> {Class, Kind}
    end.

%% Everything that can be seen: globals and sizes, memories, and what each element of a table does.
seen(Inst) ->
    {told(Inst, "state", []),
     [{wasmtime:memory_size(Inst, M), contents(Inst, M)} || M <- ["memory", "wide"]],
     [told(Inst, "call", [At, 3]) || At <- lists:seq(0, 20)],
     [told(Inst, "call_typed", [At, 3]) || At <- lists:seq(0, 9)]}.

contents(Inst, Memory) ->
    {ok, {_, Bytes}} = wasmtime:memory_size(Inst, Memory),
    {ok, Data} = wasmtime:read_memory(Inst, Memory, 0, Bytes),
    erlang:md5(Data).

imports() -> #{{"env", "one"} => fun(_, [X]) -> {ok, [X + 1000]} end}.

%% ---- operations -----------------------------------------------------------------------------

operation() ->
    oneof(operations()).

operations() ->
    Three = [place(), small(), small()],
    [{"store", [place(), i32()]}, {"store_wide", [place(), i64()]},
     {"grow", [range(0, 2)]}, {"grow_wide", [range(0, 2)]}, {"fill", [place(), i32(), extent()]},
     {"copy", [place(), place(), extent()]}, {"widen", [place(), place(), extent()]},
     {"init", Three}, {"init_wide", Three}, {"init_active", [place(), 0, range(0, 1)]},
     {"drop", []}, {"drop_active", []},
     {"elem", [small(), small(), small()]}, {"elem_typed", [small(), small(), small()]},
     {"elem_placed", [small(), 0, range(0, 1)]}, {"elem_declared", [small(), 0, range(0, 1)]},
     {"elem_drop", []}, {"elem_drop_typed", []}, {"set", [slot(), range(0, 2)]},
     {"set_typed", [small(), small()]}, {"table_grow", [small(), range(0, 2)]},
     {"table_grow_typed", [range(0, 2)]}, {"table_fill", [slot(), range(0, 2), small()]},
     {"table_copy", [slot(), small(), small()]},
     {"globals", [i32(), i64(), {f32, range(0, 16#FFFFFFFF)}, {f64, range(0, 16#FFFFFFFFFFFFFFFF)},
                  binary(16)]},
     {"call", [slot(), i32()]}, {"call_typed", [small(), i32()]}].

%% An address: mostly within the first page, often at its end.
place() ->
    frequency([{6, range(0, ?PAGE - 300)}, {3, range(?PAGE - 8, ?PAGE)}, {1, range(0, 2 * ?PAGE)}]).

extent() -> frequency([{4, range(0, 300)}, {1, range(0, ?PAGE)}]).

small() -> range(0, 3).

slot() -> range(0, 7).

i32() -> range(-16#80000000, 16#7FFFFFFF).

i64() -> range(-16#8000000000000000, 16#7FFFFFFFFFFFFFFF).
