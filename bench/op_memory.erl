%% Reading and writing a guest's memory: of an idle instance, and inside a host function.
-module(op_memory).
-behaviour(bench_ops).

-export([run/1]).

-define(GUEST,
        "(module (import \"host\" \"ask\" (func $ask)) (memory (export \"memory\") 2)"
        " (func (export \"go\") (call $ask)))").
-define(SIZES, [64, 65536]).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners} = Context) ->
    Mod = bench_guest:must("the guest of memory", wasmtime:compile({wat, ?GUEST})),
    Keys = [{Runner, Where, What, Size} || Where <- [idle, host], What <- [read, write],
                                           Size <- ?SIZES, Runner <- Runners],
    Live = [{Runner, live(Mod, Runner)} || Runner <- Runners],
    Rows = [{title(Key), row(Key, Live)} || Key <- Keys],
    Samples = bench_ops:measure(Rows, Context),
    lists:foreach(fun({_, Inst}) -> ok = wasmtime:destroy(Inst) end, Live),
    #{samples => Samples,
      figures => [Figure || {scheduler, Where, What, Size} <- Keys,
                            Figure <- ratio({Where, What, Size}, Samples)]}.

ratio({Where, What, Size}, Samples) ->
    Title = fun(Runner) -> title({Runner, Where, What, Size}) end,
    bench_ops:ratio(Title("thread / scheduler"), Title(thread), Title(scheduler), Samples, none).

%% The host function does what the process was told to do.
live(Mod, Runner) ->
    Ask = fun(Inst, []) ->
        Do = get(ask),
        put(told, Do(Inst)),
        {ok, []}
    end,
    bench_guest:instantiate(Mod, #{runner => Runner,
                                   imports => #{{<<"host">>, <<"ask">>} => Ask}}).

row({Runner, Where, What, Size}, Live) ->
    {_, Inst} = lists:keyfind(Runner, 1, Live),
    Once = once(What, Size),
    fun(Count) ->
        Do = fun(Entered) -> [Once(Entered) || _ <- lists:seq(1, Count)] end,
        inside(Where, Inst, Do)
    end.

inside(idle, Inst, Do) -> Do(Inst);
inside(host, Inst, Do) ->
    put(ask, Do),
    {ok, []} = wasmtime:call(Inst, <<"go">>, []),
    erase(ask),
    erase(told).

once(read, Size) ->
    fun(Inst) ->
        {Nanos, {ok, Bytes}} = bench_stats:timed(fun() -> wasmtime:read_memory(Inst, 16, Size) end),
        Size = byte_size(Bytes),
        Nanos
    end;
once(write, Size) ->
    Data = binary:copy(<<7>>, Size),
    fun(Inst) ->
        {Nanos, ok} = bench_stats:timed(fun() -> wasmtime:write_memory(Inst, 16, Data) end),
        Nanos
    end.

title({Runner, Where, What, Size}) ->
    lists:concat([Runner, ", ", where(Where), ", ", What, " ", Size, " B"]).

where(idle) -> "idle";
where(host) -> "host function".
