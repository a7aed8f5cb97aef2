%% A host call of a guest that does nothing else, with one caller and with 14.
-module(op_host_call).
-behaviour(bench_ops).

-export([run/1]).

-define(ROUNDS, 5).
-define(CALLERS, 14).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners, size := #{ms := Ms}}) ->
    Mod = bench_host_call:guest(),
    Rows = [{title(Runner, Callers),
             fun(_) -> bench_host_call:samples(Mod, Runner, Callers, max(1, Ms div ?ROUNDS)) end}
            || Callers <- [1, ?CALLERS], Runner <- Runners],
    Samples = bench_rounds:run(Rows, 1, lists:duplicate(?ROUNDS, 1)),
    Ratio = fun(Callers, Bar) ->
        bench_ops:ratio(title("thread / scheduler", Callers), title(thread, Callers),
                        title(scheduler, Callers), Samples, {at_least, Bar})
    end,
    #{samples => Samples, figures => Ratio(1, 8) ++ Ratio(?CALLERS, 20)}.

title(Runner, 1) -> lists:concat([Runner, ", 1 caller"]);
title(Runner, N) -> lists:concat([Runner, ", ", N, " callers"]).
