%% The main job, measured: every request in a fresh, pre-initialized CPython, beside what Wasmtime
%% alone gives for the same work. Run by scripts/bench-reactor.sh.
%% Rule: a result that cannot be verified ends the run with a message and a non-zero status.
-module(reactor_bench).

-export([main/1, check/1]).

%% @doc Runs the benchmark with the words of the command line and ends the VM. The environment says
%% where the guest (PY_REACTOR_DIR) and the floor program (WASMTIME_FLOOR) are.
-spec main([string()]) -> no_return().
main(Words) ->
    case parse(Words) of
        help -> halt(0);
        Options -> halt(run(Options))
    end.

%% @doc Ends the VM with status 0 when the words make sense, after the help if they ask for it.
-spec check([string()]) -> no_return().
check(Words) ->
    _ = parse(Words),
    halt(0).

parse(Words) ->
    try bench_options:parse(Words) of
        help -> io:put_chars(bench_options:help()), help;
        Options -> Options
    catch
        throw:{usage, Message} ->
            halt(fail("~ts~n~n~ts", [Message, bench_options:help()]))
    end.

run(Options) ->
    Temp = temporary(),
    try
        bench_json:writable(maps:get(json, Options)),
        ok = bench_pictures:writable(maps:get(svg, Options)),
        Report = measure(Options, Temp),
        io:put_chars(bench_report:markdown(Report)),
        bench_json:write(maps:get(json, Options), bench_report:json(Report)),
        bench_pictures:write(maps:get(svg, Options), Report),
        verdict(Report)
    catch
        throw:{failed, Message} -> fail("~ts", [Message]);
        Class:Reason:Stack -> fail("~p: ~tp~n~tp", [Class, Reason, Stack])
    after
        _ = file:del_dir_r(Temp)
    end.

%% Everything is said by now; the status says it once more.
verdict(#{runners := Runners}) ->
    case [Name || {Name, #{isolation := #{globals := G, files := F}}} <- Runners, not (G and F)] of
        [] -> 0;
        Leaky -> fail("isolation does not hold with runner ~p", [Leaky])
    end.

measure(#{runner := Wanted} = Options, Temp) ->
    Runners = bench_guest:runners(Wanted),
    {Guest, Prepare} = bench_guest:prepare(environment("PY_REACTOR_DIR"), Temp),
    Floor = bench_floor:open(environment("WASMTIME_FLOOR"), Guest),
    say("~b requests of each row, in rounds", [maps:get(requests, Options)]),
    {{Singles, FloorRows}, Long} =
        bench_watch:during(fun() -> bench_single:run(Runners, Guest, Floor, Options) end),
    ok = bench_floor:close(Floor),
    Figures = [{Runner, maps:merge(Single, watched(Runner, Guest, Options, Long))}
               || {Runner, Single} <- Singles],
    say("cold start", []),
    Cold = bench_guest:cold_start(Guest),
    ok = bench_guest:left_nothing(Guest),
    #{prepare => Prepare, cold_start_ms => Cold, runners => Figures, floor => FloorRows,
      options => Options}.

%% The turns of one caller belong to all runners.
watched(Runner, Guest, Options, Long) ->
    {Row, More} = bench_watch:during(fun() -> row(Runner, Guest, Options) end),
    Row#{long_schedule => length(Long) + length(More)}.

row(Runner, Guest, #{callers := Callers, seconds := Seconds, deadlines := Deadlines}) ->
    say("concurrent callers with runner ~s", [Runner]),
    Concurrent = bench_concurrent:run(Runner, Guest, Callers, Seconds),
    say("host calls, memory, isolation, deadline with runner ~s", [Runner]),
    #{concurrent => Concurrent,
      host_call => bench_host_call:run(Runner, Seconds),
      resident => bench_resident:run(Runner, Guest),
      isolation => bench_isolation:run(Runner, Guest),
      deadline => bench_deadline:run(Runner, Guest, Deadlines)}.

environment(Name) ->
    case os:getenv(Name) of
        Value when Value =:= false; Value =:= "" ->
            throw({failed, Name ++ " is not set; use scripts/bench-reactor.sh"});
        Value ->
            Value
    end.

temporary() ->
    Name = "reactor_bench." ++ os:getpid(),
    Temp = filename:join(filename:absname(os:getenv("TMPDIR", "/tmp")), Name),
    ok = filelib:ensure_dir(filename:join(Temp, "x")),
    Temp.

say(Format, Args) ->
    io:format(standard_error, "bench: " ++ Format ++ "~n", Args).

-spec fail(io:format(), [term()]) -> 1.
fail(Format, Args) ->
    io:format(standard_error, "reactor_bench: " ++ Format ++ "~n", Args),
    1.
