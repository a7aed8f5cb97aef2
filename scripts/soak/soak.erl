%% The soak: every kind of work at once, for as long as it is told, and a look at what is left whenever it
%% rests. Rule: it judges; what is done stands in soak_strains, what is looked at in soak_watch.
-module(soak).

-export([main/1, run/1]).
-export_type([options/0]).

%% `minutes', the length; `seed' of the random numbers; `python', the folder of the CPython guest;
%% `line', which is given each line as it comes.
-type options() :: #{minutes := number(), seed => integer(), python => file:filename(),
                     line => fun((iodata()) -> term())}.

%% So long the strains run between two looks, at most; and so many looks there are at least.
-define(PHASE_MS, 10_000).
-define(PHASES, 12).
%% A round of a strain that takes longer than this hangs.
-define(HANGS_MS, 120_000).

%% @doc The program: `--minutes N' (default 10), `--seed N'. Ends the VM, with status 0 when all is well.
-spec main([string()]) -> no_return().
main(Args) ->
    case options(Args, #{minutes => 10, line => fun(Line) -> io:put_chars([Line, $\n]) end}) of
        {ok, Options} ->
            halt(case run(python(Options)) of ok -> 0; {failed, _} -> 1 end);
        {error, Message} ->
            io:format(standard_error, "soak: ~ts~nusage: scripts/soak.sh [--minutes N] [--seed N]~n", [Message]),
            halt(2)
    end.

options(["--minutes", Text | Rest], Options) ->
    case number(Text) of
        Minutes when is_number(Minutes), Minutes > 0 -> options(Rest, Options#{minutes := Minutes});
        _ -> {error, ["not a number of minutes: ", Text]}
    end;
options(["--seed", Text | Rest], Options) ->
    case number(Text) of
        Seed when is_integer(Seed) -> options(Rest, Options#{seed => Seed});
        _ -> {error, ["not an integer: ", Text]}
    end;
options([], Options) -> {ok, Options};
options([Other | _], _) -> {error, ["unknown: ", Other]}.

number(Text) ->
    try list_to_integer(Text)
    catch error:badarg -> try list_to_float(Text) catch error:badarg -> none end
    end.

python(Options) ->
    case os:getenv("PY_REACTOR_DIR") of
        false -> Options;
        Dir -> Options#{python => Dir}
    end.

%% @doc Soaks. `{failed, Reasons}' when a strain failed or hung, or something grew; every reason was
%% given to `line' too.
-spec run(options()) -> ok | {failed, [iodata()]}.
run(#{minutes := Minutes} = Options) ->
    Line = maps:get(line, Options, fun(_) -> ok end),
    Seed = maps:get(seed, Options, erlang:system_time() band 16#ffffffff),
    Line(io_lib:format("soak: ~p minutes, --seed ~p", [Minutes, Seed])),
    Ms = round(Minutes * 60_000),
    Start = now_ms(),
    Set = soak_strains:set_up(Options),
    State = #{line => Line, seed => Seed, set => Set, from => Start, until => now_ms() + Ms,
              phase_ms => min(?PHASE_MS, Ms div ?PHASES), phase => 0, told => 0,
              requests => 0, errors => #{}, samples => []},
    Verdict = phases(State),
    soak_strains:tear_down(Set),
    case Verdict of
        ok -> Line("soak: nothing grew, nothing was left");
        {failed, Reasons} -> [Line(["soak: FAILED: ", Reason]) || Reason <- Reasons]
    end,
    Verdict.

%% ---- phases ---------------------------------------------------------------------------------

phases(#{until := Until, samples := Samples} = State) ->
    case now_ms() >= Until of
        true ->
            _ = tell(State),
            soak_watch:verdict(lists:reverse(Samples));
        false ->
            case phase(State) of
                {ok, Next} -> phases(told(Next));
                {failed, _} = Failed -> Failed
            end
    end.

%% All strains at once under one runner, each round after round; then a rest, and a look.
phase(#{phase := Phase, phase_ms := Ms, set := Set} = State) ->
    wasmtime_test:use(element(1 + Phase rem 2, {thread, scheduler})),
    Until = now_ms() + Ms,
    Strains = [{Name, spawn_monitor(fun() -> exit(rounds(Name, Phase, Until, State)) end)}
               || Name <- soak_strains:names(Set)],
    case results([ended(Strain) || Strain <- Strains], State) of
        {ok, Next} ->
            Sample = soak_watch:sample(soak_strains:pools(Set)),
            {ok, Next#{phase := Phase + 1, samples := [Sample | maps:get(samples, Next)]}};
        Failed -> Failed
    end.

ended({Name, {Pid, Monitor}}) ->
    receive {'DOWN', Monitor, process, Pid, Reason} -> {Name, Reason} end.

results(Ended, State) ->
    case [io_lib:format("~p: ~tp", [Name, Reason]) || {Name, Reason} <- Ended, element(1, Reason) =/= rounds] of
        [] -> {ok, lists:foldl(fun add/2, State, Ended)};
        Failures -> {failed, Failures}
    end.

add({_, {rounds, Requests, Errors}}, #{requests := R, errors := E} = State) ->
    State#{requests := R + Requests, errors := merge(Errors, E)}.

merge(A, B) -> maps:fold(fun(Key, N, Sum) -> maps:update_with(Key, fun(M) -> M + N end, N, Sum) end, B, A).

%% ---- rounds ---------------------------------------------------------------------------------

rounds(Name, Phase, Until, State) -> rounds(Name, {Phase, 0}, Until, State, {rounds, 0, #{}}).

%% At least one, so that no strain is left out of a short run.
rounds(Name, {Phase, N}, Until, #{seed := Seed, set := Set} = State, {rounds, Requests, Errors}) ->
    Random = {Seed, erlang:phash2({Name, Phase}), N},
    case round_of(fun() -> soak_strains:round(Name, Random, Set) end) of
        {done, Outcomes} ->
            Sum = {rounds, Requests + length(Outcomes), count(Outcomes, Errors)},
            case now_ms() >= Until of
                true -> Sum;
                false -> rounds(Name, {Phase, N + 1}, Until, State, Sum)
            end;
        Failed -> {Failed, {random, Random}}
    end.

%% In a process of its own, so that whatever it held is garbage afterwards.
round_of(Round) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({done, Round()}) end),
    receive {'DOWN', Monitor, process, Pid, Reason} -> Reason
    after ?HANGS_MS ->
        Stack = process_info(Pid, [current_stacktrace, messages]),
        exit(Pid, kill),
        {hangs, Stack}
    end.

count(Outcomes, Errors) ->
    Add = fun(Key, Sum) -> maps:update_with(Key, fun(N) -> N + 1 end, 1, Sum) end,
    lists:foldl(Add, Errors, [{Class, Kind} || {error, #{class := Class, kind := Kind}} <- Outcomes]).

%% ---- lines ----------------------------------------------------------------------------------

told(#{from := From, told := Told} = State) ->
    case (now_ms() - From) div 60_000 of
        Told -> State;
        _ -> tell(State)
    end.

%% What happened since the last line, and what was there at the last look.
tell(#{requests := 0} = State) -> State;
tell(#{from := From, requests := Requests, errors := Errors, samples := [Sample | _], line := Line} = State) ->
    Seconds = (now_ms() - From) div 1000,
    Kinds = lists:join(" ", [io_lib:format("~s/~s ~b", [Class, Kind, N])
                             || {{Class, Kind}, N} <- lists:sort(maps:to_list(Errors))]),
    Line(io_lib:format("~2b:~2..0b  ~b requests, ~b errors  ~ts | ~ts",
                       [Seconds div 60, Seconds rem 60, Requests, lists:sum(maps:values(Errors)),
                        soak_watch:line(Sample), Kinds])),
    State#{told := Seconds div 60, requests := 0, errors := #{}}.

now_ms() -> erlang:monotonic_time(millisecond).
