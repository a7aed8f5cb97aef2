%% What a live instance keeps of the machine's memory, after one request.
-module(bench_resident).

-export([run/2, resident/0]).

-define(INSTANCES, 50).

%% @doc Bytes of resident memory of each of 50 live instances: all that it maps, and its own share
%% (pages of the image are shared by all). Without Linux's smaps_rollup both are 0.
-spec run(thread | scheduler, bench_guest:guest()) -> #{rss | pss => number()}.
run(Runner, Guest) ->
    Mod = bench_guest:load(Guest, #{instances => ?INSTANCES + own(Runner)}),
    Options = bench_guest:options(Runner, Guest),
    First = served(Mod, Options, 0),
    Before = resident(),
    Instances = [served(Mod, Options, N) || N <- lists:seq(1, ?INSTANCES)],
    After = resident(),
    lists:foreach(fun wasmtime:destroy/1, [First | Instances]),
    maps:map(fun(Key, Bytes) -> (Bytes - maps:get(Key, Before)) / ?INSTANCES end, After).

%% A pool of each runner's own, whose slots nobody has touched.
own(thread) -> 1;
own(scheduler) -> 2.

served(Mod, Options, Number) ->
    Inst = bench_guest:instantiate(Mod, Options),
    ok = bench_guest:handle(Inst, Number),
    Inst.

%% @doc Bytes of memory that are resident in this VM.
-spec resident() -> #{rss | pss => number()}.
resident() ->
    case file:read_file("/proc/self/smaps_rollup") of
        {ok, Text} -> #{rss => kib("Rss", Text), pss => kib("Pss", Text)};
        {error, _} -> #{rss => 0, pss => 0}
    end.

kib(Name, Text) ->
    {match, [Number]} = re:run(Text, "^" ++ Name ++ ":\\s+(\\d+) kB$",
                               [multiline, {capture, all_but_first, list}]),
    list_to_integer(Number) * 1024.
