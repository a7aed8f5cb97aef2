%% What a host call costs: a guest that does nothing but call its host.
-module(bench_host_call).

-export([run/2, guest/0, samples/4, live/2, calls/1]).

-import(bench_stats, [now_ns/0, us/1, median/1]).

%% Host calls of one call, so that the call itself does not count.
-define(CALLS, 200).
-define(CALLERS, 14).

-define(GUEST,
        "(module (import \"host\" \"echo\" (func $echo (param i32) (result i32)))"
        " (func (export \"calls\") (param $n i32) (result i32) (local $i i32)"
        "  (loop $next"
        "   (local.set $i (i32.add (call $echo (local.get $i)) (i32.const 1)))"
        "   (br_if $next (i32.lt_u (local.get $i) (local.get $n))))"
        "  (local.get $i))"
        " (func (export \"one\") (result i32) (i32.const 1)))").

%% @doc Microseconds of one host call, as one caller sees it: alone, and beside 13 others.
-spec run(thread | scheduler, pos_integer()) -> #{idle | callers_14 => float()}.
run(Runner, Seconds) ->
    Mod = guest(),
    [Idle, Busy] = [samples(Mod, Runner, N, Seconds * 1000) || N <- [1, ?CALLERS]],
    #{idle => us(median(Idle)), callers_14 => us(median(Busy))}.

-spec guest() -> wasmtime:wasm_module().
guest() -> bench_guest:must("the guest of host calls", wasmtime:compile({wat, ?GUEST})).

%% @doc Nanoseconds of a host call, in so many processes for so many milliseconds: each sample is
%% the mean within one call of 200.
-spec samples(wasmtime:wasm_module(), thread | scheduler, pos_integer(), pos_integer()) ->
          [float(), ...].
samples(Mod, Runner, Callers, Ms) ->
    Caller = fun(Go) ->
        Inst = live(Mod, Runner),
        _ = calls(Inst),
        Samples = until(Go() + Ms * 1_000_000, Inst, []),
        ok = wasmtime:destroy(Inst),
        Samples
    end,
    lists:append(bench_concurrent:together(Callers, Caller)).

%% @doc An instance of the guest, served by whoever calls it.
-spec live(wasmtime:wasm_module(), thread | scheduler) -> wasmtime:instance().
live(Mod, Runner) ->
    Echo = fun(_, [N]) -> {ok, [N]} end,
    bench_guest:instantiate(Mod, #{runner => Runner,
                                   imports => #{{<<"host">>, <<"echo">>} => Echo}}).

until(End, Inst, Samples) ->
    Next = [calls(Inst) | Samples],
    case now_ns() < End of
        true -> until(End, Inst, Next);
        false -> Next
    end.

%% @doc Nanoseconds of each of 200 host calls, their mean.
-spec calls(wasmtime:instance()) -> float().
calls(Inst) ->
    Start = now_ns(),
    case wasmtime:call(Inst, <<"calls">>, [?CALLS]) of
        {ok, [?CALLS]} -> (now_ns() - Start) / ?CALLS;
        Other -> bench_guest:fail("the guest of host calls answered ~tp", [Other])
    end.
