%% The soak works, and would notice: each kind of growth, and a strain that fails.
%% Rule: the soak itself runs for seconds here, and for as long as one likes with scripts/soak.sh.
-module(soak_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% The soak is compiled here: its folder is not one where tests are looked for.
init_per_suite(Config) ->
    Dir = wasmtime_test:temp(Config, "soak"),
    Sources = filelib:wildcard(filename:join([wasmtime_test:root(), "scripts", "soak", "*.erl"])),
    [_ | _] = Sources,
    true = code:add_patha(Dir),
    [{ok, _} = compile:file(Path, [{outdir, Dir}, report, warnings_as_errors, nowarn_missing_spec])
     || Path <- Sources],
    Config.

end_per_suite(_) -> ok.

%% Every strain runs under both runners and leaves nothing. Twelve looks are too few, and all of them
%% too early, to judge memory and caches by.
t_soaks(_) ->
    Self = self(),
    Tell = fun(Line) -> Self ! {line, lists:flatten(Line)} end,
    Minutes = wasmtime_test:rounds(0.05, 0.2, 5),
    case soak:run(#{minutes => Minutes, line => Tell}) of
        ok -> ok;
        {failed, Reasons} -> [?assertMatch({match, _}, re:run(Reason, "grew")) || Reason <- Reasons]
    end,
    Lines = lines(),
    ?assertMatch([_ | _], [L || L <- Lines, match(L, "[0-9]+ requests, .* 0 slots")]),
    [?assertMatch({Kind, [_ | _]}, {Kind, [L || L <- Lines, match(L, Kind)]})
     || Kind <- ["trap/timeout", "host/host_down", "pool/overload", "stream/inbox_full", "compile/corrupted"]].

match(Line, Pattern) -> re:run(Line, Pattern, [{capture, none}]) =:= match.

lines() -> receive {line, Line} -> [Line | lines()] after 0 -> [] end.

%% What stays as it is, or goes up and down, is no growth.
t_steady(_) ->
    ?assertEqual(ok, soak_watch:verdict([sample(#{}) || _ <- lists:seq(1, 20)])),
    Noisy = [sample(#{rss => 200_000_000 + (N * 7919 rem 101) * 1_000_000}) || N <- lists:seq(1, 60)],
    ?assertEqual(ok, soak_watch:verdict(Noisy)),
    %% A warm-up may grow.
    ?assertEqual(ok, soak_watch:verdict([sample(#{threads => min(N, 5)}) || N <- lists:seq(1, 20)])).

%% Each count that grows after the warm-up is named; so is memory that grows, noisy or not.
t_growth(_) ->
    Keys = maps:keys(maps:without([live], sample(#{}))),
    [?assertMatch({Key, {failed, [_ | _]}}, {Key, soak_watch:verdict(growing(Key))}) || Key <- Keys],
    {failed, [Reason]} = soak_watch:verdict(growing(fds)),
    ?assertEqual("fds grew from 14 to 30", lists:flatten(Reason)),
    Leaky = [sample(#{rss => 200_000_000 + (N * 7919 rem 101) * 300_000 + N * 1_000_000})
             || N <- lists:seq(1, 60)],
    ?assertMatch({failed, _}, soak_watch:verdict(Leaky)).

growing(Key) ->
    First = map_get(Key, sample(#{})),
    Step = if First > 1000 -> First div 10; true -> 1 end,
    [sample(#{Key => First + N * Step}) || N <- lists:seq(0, 20)].

%% Native objects that are left at rest, slots in use, pages that were not restored: once is enough.
t_left_behind(_) ->
    [begin
         Samples = [sample(case N of 15 -> Odd; _ -> #{} end) || N <- lists:seq(1, 20)],
         ?assertMatch({Odd, {failed, [_]}}, {Odd, soak_watch:verdict(Samples)})
     end || Odd <- [#{live => #{guest => 1}}, #{slots => 1}, #{verify_failures => 1}]].

sample(Changes) ->
    maps:merge(#{live => #{guest => 0}, threads => 5, fds => 10, slots => 0, verify_failures => 0,
                 rss => 200_000_000, beam => 50_000_000, processes => 40, ports => 2, tables => 30,
                 atoms => 20_000, messages => 0}, Changes).
